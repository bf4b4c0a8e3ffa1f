import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;

/** The admin scenario of {@link JavaClient}; the admin client exists since 0.11. */
public class JavaAdmin {
  public static void run(Map<String, String> arguments) throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", arguments.get("bootstrap"));
    String topic = arguments.get("topic");
    try (AdminClient admin = AdminClient.create(properties)) {
      NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "3600000"));
      admin.createTopics(List.of(wanted)).all().get(20, TimeUnit.SECONDS);
      int partitions = describe(admin, topic).partitions().size();
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
      Config config = admin.describeConfigs(Set.of(resource)).all().get(20, TimeUnit.SECONDS).get(resource);
      admin.deleteTopics(List.of(topic)).all().get(20, TimeUnit.SECONDS);
      boolean gone = false;
      for (int i = 0; i < 50 && !gone; i++) {
        gone = !admin.listTopics().names().get(20, TimeUnit.SECONDS).contains(topic);
        Thread.sleep(gone ? 0 : 100);
      }
      System.out.printf("{\"partitions\": %d, \"config\": \"%s\", \"deleted\": %b}%n", partitions,
          config.get("retention.ms").value(), gone);
    }
  }

  /** The method that unpacks a description was renamed in 3.1 and its old name removed in 4.0. */
  @SuppressWarnings("unchecked")
  static TopicDescription describe(AdminClient admin, String topic) throws Exception {
    DescribeTopicsResult result = admin.describeTopics(List.of(topic));
    Object future;
    try {
      future = DescribeTopicsResult.class.getMethod("allTopicNames").invoke(result);
    } catch (NoSuchMethodException old) {
      future = DescribeTopicsResult.class.getMethod("all").invoke(result);
    }
    return ((KafkaFuture<Map<String, TopicDescription>>) future).get(20, TimeUnit.SECONDS).get(topic);
  }
}
