import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What KafkaShareConsumer does in each of its modes. Argument: bootstrap.
 *
 * <p>Prints one line for each scenario, with what was delivered; the test knows the lines.
 */
public class ShareScenarios {
  private static final Duration POLL = Duration.ofMillis(200);
  private static final long PATIENCE_MS = 30_000;
  private static final int LOCK_MS = 3_000;
  private static final String LAST = "the last one";
  private final String bootstrap;
  private final Admin admin;
  private String topic;
  private String group;

  ShareScenarios(String bootstrap) {
    this.bootstrap = bootstrap;
    this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
  }

  public static void main(String[] arguments) throws Exception {
    ShareScenarios scenarios = new ShareScenarios(arguments[0]);
    scenarios.implicitly();
    scenarios.explicitly();
    scenarios.renewed();
    scenarios.limited();
    scenarios.calledBack();
    scenarios.closed();
    scenarios.expired();
    scenarios.transacted();
    scenarios.admin.close();
  }

  /** The next poll, or a commit, accepts what the poll before returned. */
  private void implicitly() throws Exception {
    begin(10);
    List<String> first = new ArrayList<>();
    try (KafkaShareConsumer<String, String> consumer = consumer(Map.of())) {
      take(consumer, 10, record -> first.add(shown(record)));
      say("implicit outcome", outcome(consumer.commitSync()));
    }
    say("implicit", first + " then " + rest());
  }

  /** Accepted and rejected records are done; released ones come again, up to the limit. */
  private void explicitly() throws Exception {
    begin(4);
    List<String> seen = new ArrayList<>();
    try (KafkaShareConsumer<String, String> consumer = consumer(explicit())) {
      for (int round = 0; round < 3; round++) {
        take(
            consumer,
            round == 0 ? 4 : 2,
            record -> {
              seen.add(shown(record));
              int number = Integer.parseInt(record.value());
              AcknowledgeType type = AcknowledgeType.RELEASE;
              if (number == 0) {
                type = AcknowledgeType.ACCEPT;
              } else if (number == 1) {
                type = AcknowledgeType.REJECT;
              }
              consumer.acknowledge(record, type);
            });
        say("explicit " + round, outcome(consumer.commitSync()));
      }
    }
    say("explicit", seen + " then " + rest());
  }

  /** A lock that is renewed lasts longer than its duration; the record does not come again. */
  private void renewed() throws Exception {
    begin(1);
    try (KafkaShareConsumer<String, String> consumer = consumer(explicit())) {
      ConsumerRecord<String, String> record = take(consumer, 1, one -> {}).get(0);
      say("lock", consumer.acquisitionLockTimeoutMs().toString());
      long end = System.currentTimeMillis() + 2 * LOCK_MS;
      int others = 0;
      while (System.currentTimeMillis() < end) {
        consumer.acknowledge(record, AcknowledgeType.RENEW);
        consumer.commitSync();
        for (ConsumerRecord<String, String> other : consumer.poll(POLL)) {
          record = other;
          others += other.deliveryCount().get() == 1 ? 0 : 1;
        }
      }
      consumer.acknowledge(record, AcknowledgeType.ACCEPT);
      say("renew", others + " again, " + outcome(consumer.commitSync()) + " then " + rest());
    }
  }

  /** With record_limit a poll never has more than max.poll.records. */
  private void limited() throws Exception {
    begin(30);
    Map<String, String> settings = new HashMap<>(explicit());
    settings.put("max.poll.records", "7");
    settings.put("share.acquire.mode", "record_limit");
    List<Integer> sizes = new ArrayList<>();
    int got = 0;
    long end = System.currentTimeMillis() + PATIENCE_MS;
    try (KafkaShareConsumer<String, String> consumer = consumer(settings)) {
      while (got < 30 && System.currentTimeMillis() < end) {
        int size = 0;
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
          consumer.acknowledge(record, AcknowledgeType.ACCEPT);
          size++;
        }
        if (size > 0) {
          sizes.add(size);
        }
        got += size;
        consumer.commitSync();
      }
    }
    boolean isBounded = sizes.stream().allMatch(size -> size <= 7);
    say("record_limit", got + " records, bounded " + isBounded + " then " + rest());
  }

  /** The callback hears the outcome of acknowledgements that nobody waits for. */
  private void calledBack() throws Exception {
    begin(5);
    TreeMap<Long, String> heard = new TreeMap<>();
    try (KafkaShareConsumer<String, String> consumer = consumer(explicit())) {
      consumer.setAcknowledgementCommitCallback(
          (offsets, failure) ->
              offsets.values().forEach(
                  each ->
                      each.forEach(offset -> heard.put(offset, failure == null ? "ok" : "" + failure))));
      take(consumer, 5, consumer::acknowledge);
      consumer.commitAsync();
      long end = System.currentTimeMillis() + PATIENCE_MS;
      while (heard.size() < 5 && System.currentTimeMillis() < end) {
        consumer.poll(POLL);
      }
    }
    say("callback", heard + " then " + rest());
  }

  /** A close gives back what was delivered and not acknowledged, at once. */
  private void closed() throws Exception {
    begin(3);
    try (KafkaShareConsumer<String, String> consumer = consumer(explicit())) {
      consumer.acknowledge(take(consumer, 3, one -> {}).get(0));
    }
    say("close", rest());
  }

  /** A lock that runs out gives the record to another member; the first one is refused. */
  private void expired() throws Exception {
    begin(1);
    try (KafkaShareConsumer<String, String> late = consumer(explicit())) {
      ConsumerRecord<String, String> record = take(late, 1, one -> {}).get(0);
      String other;
      try (KafkaShareConsumer<String, String> consumer = consumer(Map.of())) {
        other = shown(take(consumer, 1, one -> {}).get(0));
      }
      late.acknowledge(record);
      say("expiry", other + ", late " + outcome(late.commitSync()));
    }
  }

  /** With read_committed an aborted transaction is not delivered. */
  private void transacted() throws Exception {
    begin(0);
    set("share.isolation.level", "read_committed");
    Map<String, Object> settings = producerSettings();
    settings.put("transactional.id", UUID.randomUUID().toString());
    try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
      producer.initTransactions();
      for (String word : List.of("kept", "dropped", "last")) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, word));
        if (word.equals("dropped")) {
          producer.flush();
          producer.abortTransaction();
        } else {
          producer.commitTransaction();
        }
      }
    }
    List<String> seen = new ArrayList<>();
    try (KafkaShareConsumer<String, String> consumer = consumer(Map.of())) {
      take(consumer, 2, record -> seen.add(record.value()));
      consumer.commitSync();
    }
    say("transactions", seen + " then " + rest());
  }

  private void begin(int records) throws Exception {
    topic = "scenario-" + UUID.randomUUID();
    group = "group-" + UUID.randomUUID();
    admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
    set("share.auto.offset.reset", "earliest");
    set("share.record.lock.duration.ms", "" + LOCK_MS);
    set("share.delivery.count.limit", "3");
    try (Producer<String, String> producer = new KafkaProducer<>(producerSettings())) {
      for (int number = 0; number < records; number++) {
        producer.send(new ProducerRecord<>(topic, "" + number));
      }
    }
  }

  private void set(String name, String value) throws Exception {
    ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
    AlterConfigOp change =
        new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
  }

  private Map<String, Object> producerSettings() {
    Map<String, Object> settings = new HashMap<>();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("key.serializer", StringSerializer.class.getName());
    settings.put("value.serializer", StringSerializer.class.getName());
    settings.put("linger.ms", "500");
    return settings;
  }

  private static Map<String, String> explicit() {
    return Map.of("share.acknowledgement.mode", "explicit");
  }

  private KafkaShareConsumer<String, String> consumer(Map<String, String> settings) {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", bootstrap);
    properties.put("group.id", group);
    properties.putAll(settings);
    KafkaShareConsumer<String, String> consumer =
        new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    consumer.subscribe(Set.of(topic));
    return consumer;
  }

  /** The records of as many polls as it takes; each is handled before the next poll. */
  private static List<ConsumerRecord<String, String>> take(
      KafkaShareConsumer<String, String> consumer,
      int wanted,
      Consumer<ConsumerRecord<String, String>> handle) {
    List<ConsumerRecord<String, String>> found = new ArrayList<>();
    long end = System.currentTimeMillis() + PATIENCE_MS;
    while (found.size() < wanted) {
      if (System.currentTimeMillis() > end) {
        throw new IllegalStateException(found.size() + " records, wanted " + wanted);
      }
      for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
        found.add(record);
        handle.accept(record);
      }
    }
    return found;
  }

  /** What a new member still gets before a last record, and within a second after it. */
  private String rest() throws Exception {
    try (Producer<String, String> producer = new KafkaProducer<>(producerSettings())) {
      producer.send(new ProducerRecord<>(topic, LAST)).get();
    }
    List<String> found = new ArrayList<>();
    long end = System.currentTimeMillis() + PATIENCE_MS;
    try (KafkaShareConsumer<String, String> consumer = consumer(Map.of())) {
      while (System.currentTimeMillis() < end) {
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
          if (record.value().equals(LAST)) {
            end = Math.min(end, System.currentTimeMillis() + 1_000);
          } else {
            found.add(shown(record));
          }
        }
      }
    }
    return found.toString();
  }

  private static String shown(ConsumerRecord<String, String> record) {
    return record.value() + "x" + record.deliveryCount().map(count -> "" + count).orElse("?");
  }

  private static String outcome(
      Map<?, ? extends Optional<? extends RuntimeException>> outcomes) {
    List<String> found = new ArrayList<>();
    outcomes.values().forEach(
        each -> found.add(each.map(one -> one.getClass().getSimpleName()).orElse("ok")));
    return found.toString();
  }

  private static void say(String scenario, String what) {
    System.out.println(scenario + ": " + what);
  }
}
