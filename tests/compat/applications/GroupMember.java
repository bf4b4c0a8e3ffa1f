import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group until its input ends. Arguments: bootstrap, topic, group, group protocol.
 *
 * <p>Prints "owns 0,1" whenever its assignment changes and "read VALUE" for each record. It commits
 * before it gives partitions up, so that whoever has them next goes on where it was.
 */
public class GroupMember {
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", arguments[0]);
    properties.put("group.id", arguments[2]);
    properties.put("group.protocol", arguments[3]);
    properties.put("auto.offset.reset", "earliest");
    properties.put("enable.auto.commit", "false");
    if (arguments[3].equals("classic")) {
      properties.put("heartbeat.interval.ms", "300");
    }
    AtomicBoolean isStopping = new AtomicBoolean();
    Thread input =
        new Thread(
            () -> {
              try {
                System.in.read();
              } catch (java.io.IOException gone) {
                // the same as its end
              }
              isStopping.set(true);
            });
    input.setDaemon(true);
    input.start();
    try (KafkaConsumer<String, String> consumer =
        new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(arguments[1]), new Listener(consumer));
      while (!isStopping.get()) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
          System.out.println("read " + record.value());
        }
      }
    }
    System.out.println("owns");
  }

  private static class Listener implements ConsumerRebalanceListener {
    private final KafkaConsumer<String, String> consumer;

    Listener(KafkaConsumer<String, String> consumer) {
      this.consumer = consumer;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
      consumer.commitSync();
      tell(new TreeSet<>(), partitions);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      tell(partitions, List.of());
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
      System.out.println("lost " + partitions);
    }

    private void tell(Collection<TopicPartition> more, Collection<TopicPartition> fewer) {
      TreeSet<Integer> owned = new TreeSet<>();
      consumer.assignment().forEach(each -> owned.add(each.partition()));
      more.forEach(each -> owned.add(each.partition()));
      fewer.forEach(each -> owned.remove(each.partition()));
      System.out.println("owns " + String.join(",", owned.stream().map(String::valueOf).toList()));
    }
  }
}
