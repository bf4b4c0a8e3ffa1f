import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** The transact scenario of {@link JavaClient}; transactions exist since 0.11. */
public class JavaTransactions {
  public static void run(Map<String, String> arguments) throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", arguments.get("bootstrap"));
    properties.put("transactional.id", arguments.get("id"));
    int partitions = Integer.parseInt(arguments.get("partitions"));
    KafkaProducer<String, String> producer =
        new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    producer.initTransactions();
    String[] prefixes = {"committed", "aborted", "committed"};
    int[] firsts = {0, 0, 10};
    for (int part = 0; part < prefixes.length; part++) {
      producer.beginTransaction();
      for (int i = firsts[part]; i < firsts[part] + 10; i++) {
        String value = prefixes[part] + "-" + i;
        producer.send(new ProducerRecord<>(arguments.get("topic"), i % partitions, null, value));
      }
      producer.flush();
      if (part == 1) {
        producer.abortTransaction();
      } else {
        producer.commitTransaction();
      }
    }
    producer.close();
    System.out.println("{\"committed\": 20, \"aborted\": 10}");
  }
}
