import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The clients of Kafka 0.8.2: the first Java producer and the Scala SimpleConsumer, which know version 0 of
 * everything and message format v0 (see ../README.md).
 *
 * <p>The group of 0.8's high-level consumer lives in ZooKeeper; what it can do with a broker alone is to commit
 * and fetch offsets of a named group, which is what `consume` does here over all partitions.
 */
public class JavaAncient {
  static final Map<String, String> arguments = new HashMap<>();

  public static void main(String[] words) throws Exception {
    for (int i = 1; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      arguments.put(pair[0], pair[1]);
    }
    if (words[0].equals("produce")) {
      produce();
    } else {
      consume();
    }
    System.exit(0);
  }

  static int number(String name, int otherwise) {
    return Integer.parseInt(arguments.getOrDefault(name, String.valueOf(otherwise)));
  }

  static void produce() throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", arguments.get("bootstrap"));
    properties.put("acks", "all");
    properties.put("linger.ms", "20");
    properties.put("compression.type", arguments.getOrDefault("codec", "none"));
    for (String side : new String[] {"key", "value"}) {
      properties.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
    }
    KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
    List<Future<?>> sent = new ArrayList<>();
    for (int i = 0; i < number("count", 1); i++) {
      String value = "value-" + i + "-" + "x".repeat(64);
      int partition = i % number("partitions", 1);
      sent.add(producer.send(new ProducerRecord<>(arguments.get("topic"), partition, "key-" + i, value)));
    }
    for (Future<?> future : sent) {
      future.get();
    }
    producer.close();
    System.out.println("{\"acked\": " + sent.size() + "}");
  }

  static void consume() throws Exception {
    String[] address = arguments.get("bootstrap").split(":");
    String topic = arguments.get("topic");
    String group = arguments.get("group");
    SimpleConsumer consumer =
        new SimpleConsumer(address[0], Integer.parseInt(address[1]), 10_000, 1 << 20, "ancient");
    List<TopicAndPartition> partitions = new ArrayList<>();
    for (int i = 0; i < number("partitions", 4); i++) {
      partitions.add(new TopicAndPartition(topic, i));
    }
    Map<TopicAndPartition, Long> positions = fetchOffsets(consumer, group, partitions);
    int count = number("count", 0);
    long deadline = System.currentTimeMillis() + 40_000;
    List<String> records = new ArrayList<>();
    while (records.size() < count && System.currentTimeMillis() < deadline) {
      for (TopicAndPartition place : partitions) {
        read(consumer, place, positions, records, count);
      }
    }
    commitOffsets(consumer, group, positions);
    consumer.close();
    System.out.println("{\"records\": [" + String.join(",", records) + "]}");
  }

  static void read(SimpleConsumer consumer, TopicAndPartition place, Map<TopicAndPartition, Long> positions,
      List<String> records, int count) throws Exception {
    FetchResponse response = consumer.fetch(new FetchRequestBuilder().clientId("ancient")
        .addFetch(place.topic(), place.partition(), positions.get(place), 100_000).build());
    if (response.hasError()) {
      throw new IllegalStateException("fetch: error " + response.errorCode(place.topic(), place.partition()));
    }
    for (MessageAndOffset entry : response.messageSet(place.topic(), place.partition())) {
      // A compressed set begins before the asked offset.
      if (entry.offset() >= positions.get(place) && records.size() < count) {
        records.add(String.format("[%d,%d,null,\"%s\",\"%s\"]", place.partition(), entry.offset(),
            text(entry.message().key()), text(entry.message().payload())));
        positions.put(place, entry.nextOffset());
      }
    }
  }

  static String text(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.get(bytes);
    return new String(bytes);
  }

  static Map<TopicAndPartition, Long> fetchOffsets(SimpleConsumer consumer, String group,
      List<TopicAndPartition> partitions) {
    Map<TopicAndPartition, OffsetMetadataAndError> found =
        consumer.fetchOffsets(new OffsetFetchRequest(group, partitions, (short) 1, 0, "ancient")).offsets();
    Map<TopicAndPartition, Long> positions = new HashMap<>();
    for (TopicAndPartition place : partitions) {
      positions.put(place, Math.max(0L, found.get(place).offset()));
    }
    return positions;
  }

  static void commitOffsets(SimpleConsumer consumer, String group, Map<TopicAndPartition, Long> positions) {
    Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
    for (Map.Entry<TopicAndPartition, Long> entry : positions.entrySet()) {
      offsets.put(entry.getKey(), OffsetAndMetadata.apply(entry.getValue(), "", -1L));
    }
    if (consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 0, "ancient", (short) 1)).hasError()) {
      throw new IllegalStateException("the commit was refused");
    }
  }
}
