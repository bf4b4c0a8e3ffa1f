import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints, once per round, how many milliseconds pass from making a consumer of a new group to its
 * first record. Arguments: bootstrap, topic, group protocol, rounds. The first round loads classes.
 */
public class JoinTime {
  public static void main(String[] arguments) {
    for (int round = 0; round < Integer.parseInt(arguments[3]); round++) {
      Properties properties = new Properties();
      properties.put("bootstrap.servers", arguments[0]);
      properties.put("group.id", "join-" + arguments[2] + "-" + round + "-" + System.nanoTime());
      properties.put("group.protocol", arguments[2]);
      properties.put("auto.offset.reset", "earliest");
      long began = System.nanoTime();
      try (KafkaConsumer<byte[], byte[]> consumer =
          new KafkaConsumer<>(
              properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
        consumer.subscribe(List.of(arguments[1]));
        while (consumer.poll(Duration.ofMillis(100)).isEmpty()) {
          // not yet
        }
        System.out.println((System.nanoTime() - began) / 1_000_000);
      }
    }
  }
}
