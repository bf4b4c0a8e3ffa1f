import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of a topic, exactly once, until it is killed or its standard input ends.
 * Arguments: bootstrap, input topic, output topic, application id, state directory, group protocol.
 */
public class WordCount {
  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
    properties.put("auto.offset.reset", "earliest");
    properties.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, arguments[5]);
    if (arguments[5].equals("classic")) {
      properties.put("session.timeout.ms", 6000);
    }
    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
        .count(
            Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long()))
        .toStream()
        .mapValues(count -> Long.toString(count))
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
    try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
      streams.start();
      while (System.in.read() >= 0) {
        // whatever is written to us means "go on"
      }
      streams.close(Duration.ofSeconds(10));
    }
  }
}
