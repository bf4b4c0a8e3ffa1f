import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers that never give up. Arguments: bootstrap, topic, number of producers,
 * first number of their transactions, transactions of each (0: only take the ids over).
 *
 * <p>Transaction n of producer p writes "p-n" to partitions 0 and 1 and commits n as the offset of
 * group p. Printed is what the producer knows: "committed p-n", "aborted p-n"; nothing when it was
 * not told.
 */
public class Transactions {
  public static void main(String[] arguments) throws Exception {
    Thread[] threads = new Thread[Integer.parseInt(arguments[2])];
    for (int i = 0; i < threads.length; i++) {
      int number = i;
      threads[i] = new Thread(() -> new Transactions(arguments, number).run());
      threads[i].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
  }

  private final String[] arguments;
  private final int number;
  private final Random random;
  private KafkaProducer<String, String> producer;

  private Transactions(String[] arguments, int number) {
    this.arguments = arguments;
    this.number = number;
    this.random = new Random(31L * number + Integer.parseInt(arguments[3]));
  }

  private void run() {
    int first = Integer.parseInt(arguments[3]);
    int count = Integer.parseInt(arguments[4]);
    takeOver();
    for (int n = first; n < first + count; n++) {
      try {
        boolean isCommit = random.nextInt(4) > 0;
        write(n);
        end(isCommit);
        System.out.println((isCommit ? "committed " : "aborted ") + number + "-" + n);
      } catch (KafkaException error) {
        System.out.println("# " + number + "-" + n + " " + error);
        takeOver();
      }
    }
    producer.close();
  }

  private void write(int n) {
    producer.beginTransaction();
    for (int partition = 0; partition < 2; partition++) {
      producer.send(new ProducerRecord<>(arguments[1], partition, null, number + "-" + n));
    }
    TopicPartition place = new TopicPartition(arguments[1], 0);
    producer.sendOffsetsToTransaction(
        Map.of(place, new OffsetAndMetadata(n)), new ConsumerGroupMetadata("group-" + number));
  }

  private void end(boolean isCommit) {
    while (true) {
      try {
        if (isCommit) {
          producer.commitTransaction();
        } else {
          producer.abortTransaction();
        }
        return;
      } catch (TimeoutException late) {
        // The same call again asks for the same end.
      }
    }
  }

  /** A new producer of the id: what the former one left open is aborted, or ended as it was. */
  private void takeOver() {
    while (true) {
      if (producer != null) {
        producer.close(java.time.Duration.ZERO);
      }
      Properties properties = new Properties();
      properties.put("bootstrap.servers", arguments[0]);
      properties.put("transactional.id", "id-" + number);
      properties.put("request.timeout.ms", "3000");
      properties.put("delivery.timeout.ms", "10000");
      properties.put("max.block.ms", "10000");
      properties.put("reconnect.backoff.max.ms", "200");
      producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
      try {
        producer.initTransactions();
        return;
      } catch (KafkaException error) {
        System.out.println("# " + number + " init " + error);
      }
    }
  }
}
