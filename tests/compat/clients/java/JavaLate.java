import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/** The late scenario of {@link JavaClient}: what a producer can do after its transaction timed out. */
public class JavaLate {
  public static void run(Map<String, String> arguments) throws Exception {
    String topic = arguments.get("topic");
    KafkaProducer<String, String> producer = producer(arguments);
    producer.beginTransaction();
    producer.send(new ProducerRecord<>(topic, "late")).get();
    System.out.println("{\"written\": true}");
    while (!Files.exists(Path.of(arguments.get("go")))) {
      Thread.sleep(20);
    }
    String ended = "done";
    try {
      if (arguments.get("end").equals("commit")) {
        producer.commitTransaction();
      } else {
        producer.abortTransaction();
      }
    } catch (KafkaException error) {
      ended = error.getClass().getSimpleName();
    }
    boolean survives = true;
    try {
      write(producer, topic, "next");
    } catch (KafkaException error) {
      survives = false;
      producer.close(Duration.ZERO);
      producer = producer(arguments);
      write(producer, topic, "next");
    }
    producer.close();
    System.out.println("{\"ended\": \"" + ended + "\", \"survives\": " + survives + "}");
  }

  private static KafkaProducer<String, String> producer(Map<String, String> arguments) {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", arguments.get("bootstrap"));
    properties.put("transactional.id", arguments.get("id"));
    properties.put("transaction.timeout.ms", arguments.get("timeout_ms"));
    KafkaProducer<String, String> producer =
        new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    producer.initTransactions();
    return producer;
  }

  private static void write(KafkaProducer<String, String> producer, String topic, String value) {
    producer.beginTransaction();
    producer.send(new ProducerRecord<>(topic, value));
    producer.commitTransaction();
  }
}
