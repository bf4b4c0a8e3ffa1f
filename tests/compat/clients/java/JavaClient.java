import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.FileReader;
import java.io.IOException;
import java.io.OutputStream;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Apache Kafka's Java client, any version from 0.9 to 4.x (see ../README.md for the contract).
 *
 * <p>One source for all of them: what only some versions have (timestamps since 0.10.0, headers since
 * 0.11, poll(Duration) since 2.0 and poll(long) until 3.x) is looked up by reflection. Admin and
 * transactions are classes of their own, compiled where the version has them.
 */
public class JavaClient {
  static Map<String, String> arguments = new HashMap<>();
  static final long STARTED = System.nanoTime();
  private static final String PASSWORD = "of-this-run";

  public static void main(String[] words) throws Exception {
    for (int i = 1; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      arguments.put(pair[0], pair[1]);
    }
    switch (words[0]) {
      case "produce" -> produce();
      case "consume", "member" -> consume();
      case "times" -> times();
      case "admin", "transact", "late" -> Class.forName(
              Map.of("admin", "JavaAdmin", "transact", "JavaTransactions", "late", "JavaLate").get(words[0]))
          .getMethod("run", Map.class).invoke(null, arguments);
      default -> throw new IllegalArgumentException(words[0]);
    }
    System.exit(0);
  }

  static int number(String name, int otherwise) {
    return Integer.parseInt(arguments.getOrDefault(name, String.valueOf(otherwise)));
  }

  static void emit(String json) {
    System.out.println(json);
    System.out.flush();
  }

  private static void secure(Properties properties) {
    properties.put("security.protocol", arguments.get("security"));
    boolean readsPem = !AppInfoParser.getVersion().matches("[01]\\..*");
    if (arguments.containsKey("ca")) {
      properties.put("ssl.truststore.type", readsPem ? "PEM" : "PKCS12");
      properties.put("ssl.truststore.location", readsPem ? arguments.get("ca") : store("ca", false));
      if (!readsPem) {
        properties.put("ssl.truststore.password", PASSWORD);
      }
    }
    if (arguments.containsKey("cert") && readsPem) {
      // The texts, not the file's name: Kafka 2.8 wants a password for a key in a file.
      String pem = textOf(arguments.get("cert"));
      properties.put("ssl.keystore.type", "PEM");
      properties.put("ssl.keystore.key", pem);
      properties.put("ssl.keystore.certificate.chain", pem);
    } else if (arguments.containsKey("cert")) {
      properties.put("ssl.keystore.type", "PKCS12");
      properties.put("ssl.keystore.location", store("cert", true));
      properties.put("ssl.keystore.password", PASSWORD);
      properties.put("ssl.key.password", PASSWORD);
    }
    if (arguments.containsKey("properties")) {
      try (Reader reader = new FileReader(arguments.get("properties"))) {
        properties.load(reader);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    } else if (arguments.containsKey("mechanism")) {
      String mechanism = arguments.get("mechanism");
      String module = mechanism.equals("PLAIN") ? "plain.Plain" : "scram.Scram";
      String line =
          String.format(
              "org.apache.kafka.common.security.%sLoginModule required username=\"%s\" password=\"%s\";",
              module, arguments.get("user"), arguments.get("password"));
      properties.put("sasl.mechanism", mechanism);
      if (AppInfoParser.getVersion().startsWith("0.10.0")) {
        System.setProperty("java.security.auth.login.config", file("KafkaClient {" + line + "};"));
      } else {
        properties.put("sasl.jaas.config", line);
      }
    }
  }

  /** The name of a key store, which clients before PEM need, with what a PEM file has. */
  private static String store(String argument, boolean hasKey) {
    String pem = textOf(arguments.get(argument));
    try {
      Certificate certificate =
          CertificateFactory.getInstance("X.509")
              .generateCertificate(new ByteArrayInputStream(part(pem, "CERTIFICATE").getBytes()));
      KeyStore made = KeyStore.getInstance("PKCS12");
      made.load(null, null);
      if (hasKey) {
        String key = part(pem, "PRIVATE KEY").replaceAll("-----.*-----|\\s", "");
        PrivateKey secret =
            KeyFactory.getInstance("EC")
                .generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(key)));
        made.setKeyEntry("own", secret, PASSWORD.toCharArray(), new Certificate[] {certificate});
      } else {
        made.setCertificateEntry("authority", certificate);
      }
      String path = file("");
      try (OutputStream out = new FileOutputStream(path)) {
        made.store(out, PASSWORD.toCharArray());
      }
      return path;
    } catch (IOException | GeneralSecurityException error) {
      throw new IllegalStateException(error);
    }
  }

  private static String part(String pem, String kind) {
    String end = "-----END " + kind + "-----";
    return pem.substring(pem.indexOf("-----BEGIN " + kind), pem.indexOf(end) + end.length());
  }

  private static String file(String text) {
    try {
      File made = File.createTempFile("client", ".tmp");
      made.deleteOnExit();
      return Files.write(made.toPath(), text.getBytes()).toString();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static String textOf(String path) {
    try {
      return new String(Files.readAllBytes(Paths.get(path)));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static Properties properties(String role) {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", arguments.get("bootstrap"));
    if (arguments.containsKey("security")) {
      secure(properties);
    }
    for (String side : new String[] {"key", "value"}) {
      String kind = role.equals("serializer") ? "Serializer" : "Deserializer";
      properties.put(side + "." + role, "org.apache.kafka.common.serialization.String" + kind);
    }
    return properties;
  }

  static void produce() throws Exception {
    Properties properties = properties("serializer");
    properties.put("acks", "all");
    properties.put("linger.ms", "20");
    properties.put("compression.type", arguments.getOrDefault("codec", "none"));
    // Before 1.0 a client that may not log in asks for metadata until this time is over.
    properties.put("max.block.ms", String.valueOf(1000 * number("timeout", 40)));
    KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
    List<Future<?>> sent = new ArrayList<>();
    int count = number("count", 1);
    for (int i = 0; i < count; i++) {
      sent.add(producer.send(record(i, count)));
    }
    for (Future<?> future : sent) {
      future.get();
    }
    producer.close();
    emit("{\"acked\": " + sent.size() + "}");
  }

  @SuppressWarnings("unchecked")
  static ProducerRecord<String, String> record(int i, int count) throws Exception {
    int partition = i % number("partitions", 1);
    Long timestamp = Long.parseLong(arguments.get("base")) + ((long) i * 37 % count) * 1000L;
    String topic = arguments.get("topic");
    String key = "key-" + i;
    String value = "value-" + i + "-" + "x".repeat(64);
    Constructor<?> longest = null;
    for (Constructor<?> candidate : ProducerRecord.class.getConstructors()) {
      if (longest == null || candidate.getParameterCount() > longest.getParameterCount()) {
        longest = candidate;
      }
    }
    Object made = switch (longest.getParameterCount()) {
      case 4 -> longest.newInstance(topic, partition, key, value);
      case 5 -> longest.newInstance(topic, partition, timestamp, key, value);
      default -> longest.newInstance(topic, partition, timestamp, key, value, JavaHeaders(i));
    };
    return (ProducerRecord<String, String>) made;
  }

  static Object JavaHeaders(int i) throws Exception {
    Constructor<?> header = Class.forName("org.apache.kafka.common.header.internals.RecordHeader")
        .getConstructor(String.class, byte[].class);
    return List.of(header.newInstance("n", String.valueOf(i).getBytes()));
  }

  static KafkaConsumer<String, String> consumer() {
    Properties properties = properties("deserializer");
    properties.put("group.id", arguments.getOrDefault("group", "times"));
    properties.put("auto.offset.reset", "earliest");
    properties.put("enable.auto.commit", "false");
    properties.put("metadata.max.age.ms", "2000");
    if (arguments.containsKey("protocol")) {
      properties.put("group.protocol", arguments.get("protocol"));
    } else {
      properties.put("session.timeout.ms", "6000");
      properties.put("heartbeat.interval.ms", "1000");
    }
    if (arguments.containsKey("isolation")) {
      properties.put("isolation.level", arguments.get("isolation"));
    }
    return new KafkaConsumer<>(properties);
  }

  @SuppressWarnings("unchecked")
  static ConsumerRecords<String, String> poll(KafkaConsumer<String, String> consumer) throws Exception {
    Method poll;
    Object wait;
    try {
      poll = KafkaConsumer.class.getMethod("poll", Duration.class);
      wait = Duration.ofMillis(200);
    } catch (NoSuchMethodException old) {
      poll = KafkaConsumer.class.getMethod("poll", long.class);
      wait = 200L;
    }
    return (ConsumerRecords<String, String>) poll.invoke(consumer, wait);
  }

  static boolean wantsMore(int seen) {
    boolean overdue = (System.nanoTime() - STARTED) / 1e9 > number("timeout", 40);
    if (arguments.containsKey("stop")) {
      return !overdue && !new File(arguments.get("stop")).exists();
    }
    int count = number("count", 0);
    if (seen < count && overdue) {
      throw new IllegalStateException("only " + seen + " of " + count + " records came in time");
    }
    return seen < count;
  }

  static Object timestamp(ConsumerRecord<?, ?> record) throws Exception {
    try {
      return ConsumerRecord.class.getMethod("timestamp").invoke(record);
    } catch (NoSuchMethodException old) {
      return "null";
    }
  }

  static void consume() throws Exception {
    KafkaConsumer<String, String> consumer = consumer();
    consumer.subscribe(List.of(arguments.get("topic")), new ConsumerRebalanceListener() {
      public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

      public void onPartitionsAssigned(Collection<TopicPartition> ignored) {
        TreeSet<Integer> numbers = new TreeSet<>();
        for (TopicPartition partition : consumer.assignment()) {
          numbers.add(partition.partition());
        }
        emit("{\"assigned\": " + numbers + "}");
      }
    });
    List<String> records = new ArrayList<>();
    Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    int count = number("count", Integer.MAX_VALUE);
    while (wantsMore(records.size())) {
      for (ConsumerRecord<String, String> record : poll(consumer)) {
        if (records.size() >= count) {
          break;
        }
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        positions.put(partition, new OffsetAndMetadata(record.offset() + 1));
        records.add(String.format("[%d,%d,%s,%s,%s]", record.partition(), record.offset(), timestamp(record),
            quoted(record.key()), quoted(record.value())));
      }
    }
    positions.keySet().retainAll(consumer.assignment());
    if (!positions.isEmpty()) {
      consumer.commitSync(positions);
    }
    consumer.close();
    emit("{\"records\": [" + String.join(",", records) + "]}");
  }

  static String quoted(String text) {
    return text == null ? "null" : "\"" + text + "\"";
  }

  static void times() throws Exception {
    KafkaConsumer<String, String> consumer = consumer();
    Method lookup = KafkaConsumer.class.getMethod("offsetsForTimes", Map.class);
    List<String> found = new ArrayList<>();
    for (String timestamp : arguments.get("timestamps").split(",")) {
      Map<TopicPartition, Long> asked = new HashMap<>();
      for (int i = 0; i < number("partitions", 1); i++) {
        asked.put(new TopicPartition(arguments.get("topic"), i), Long.parseLong(timestamp));
      }
      List<String> offsets = new ArrayList<>();
      Map<?, ?> answers = (Map<?, ?>) lookup.invoke(consumer, asked);
      for (TopicPartition partition : asked.keySet()) {
        // Before 1.0 a partition without an answer is left out, since then its value is null.
        Object value = answers.get(partition);
        Object offset = value == null ? "null" : value.getClass().getMethod("offset").invoke(value);
        offsets.add("\"" + partition.partition() + "\": " + offset);
      }
      found.add("\"" + timestamp + "\": {" + String.join(",", offsets) + "}");
    }
    consumer.close();
    emit("{\"found\": {" + String.join(",", found) + "}}");
  }
}
