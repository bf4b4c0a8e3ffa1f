import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * Asks what the pages of kafbat-ui and AKHQ ask: both show what Kafka's admin client tells them.
 * Prints one line per question, the page first, then the answer or the exception. Arguments:
 * bootstrap, topic of one partition that has records, group that has committed in it.
 */
public class AdminPages {
  private static final int TIMEOUT_S = 20;

  interface Question {
    Object ask() throws Exception;
  }

  private static <T> T of(KafkaFuture<T> future) throws Exception {
    try {
      return future.get(TIMEOUT_S, TimeUnit.SECONDS);
    } catch (ExecutionException failed) {
      throw failed.getCause() instanceof Exception cause ? cause : failed;
    }
  }

  private static void page(String name, Question question) {
    String answer;
    try {
      answer = String.valueOf(question.ask());
    } catch (Exception failed) {
      answer = failed.getClass().getSimpleName();
    }
    System.out.println(name + "\t" + answer.replaceAll("\\s+", " "));
  }

  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", arguments[0]);
    try (AdminClient admin = AdminClient.create(properties)) {
      overview(admin);
      topics(admin, arguments[1]);
      groups(admin, arguments[1], arguments[2]);
    }
  }

  private static void overview(AdminClient admin) {
    page("nodes", () -> {
      var cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
      return of(cluster.nodes()).size() + " " + of(cluster.controller()).id() + " "
          + (of(cluster.clusterId()) != null) + " " + of(cluster.authorizedOperations());
    });
    page("features", () -> of(admin.describeFeatures().featureMetadata()).finalizedFeatures().keySet().stream().sorted().toList());
    page("broker settings", () -> {
      ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
      var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
      Collection<ConfigEntry> entries = of(admin.describeConfigs(Set.of(broker), options).all()).get(broker).entries();
      return entries.size() > 50 && entries.stream().allMatch(e -> e.name() != null && e.source() != null);
    });
    page("log directories", () -> {
      var directory = of(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).values().iterator().next();
      return directory.error() + " " + (directory.replicaInfos().size() > 0) + " " + directory.totalBytes().isPresent();
    });
    page("quorum", () -> of(admin.describeMetadataQuorum().quorumInfo()).leaderId());
    page("quotas", () -> of(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
    page("acls", () -> of(admin.describeAcls(AclBindingFilter.ANY).values()));
    page("users", () -> of(admin.describeUserScramCredentials().all()));
    page("reassignments", () -> of(admin.listPartitionReassignments().reassignments()));
    page("transactions", () -> of(admin.listTransactions().all()));
  }

  private static void topics(AdminClient admin, String full) {
    String topic = "page-" + System.nanoTime();
    TopicPartition partition = new TopicPartition(full, 0);
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    page("create", () -> of(admin.createTopics(List.of(new NewTopic(topic, Optional.of(2), Optional.empty()))).all()));
    page("grow", () -> of(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
    page("list", () -> of(admin.listTopics(new ListTopicsOptions().listInternal(true)).names()).contains(topic));
    page("describe", () -> {
      var described = of(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
      return described.partitions().size() + " " + described.partitions().get(0).isr().size() + " "
          + described.partitions().get(0).leader().id() + " " + described.isInternal();
    });
    page("change settings", () -> {
      var change = new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET);
      of(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
      ConfigEntry entry = of(admin.describeConfigs(Set.of(resource)).all()).get(resource).get("retention.ms");
      return entry.value() + " " + entry.source();
    });
    page("offsets", () -> {
      List<Long> offsets = new ArrayList<>();
      for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.forTimestamp(0), OffsetSpec.maxTimestamp())) {
        offsets.add(of(admin.listOffsets(Map.of(partition, spec)).all()).get(partition).offset());
      }
      return offsets;
    });
    page("producers", () -> of(admin.describeProducers(List.of(partition)).all()).size());
    page("reassign", () -> of(admin.alterPartitionReassignments(
        Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(1))))).all()));
    page("empty", () -> of(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(partition)).lowWatermark());
    page("delete topic", () -> of(admin.deleteTopics(List.of(topic)).all()));
  }

  private static void groups(AdminClient admin, String topic, String group) {
    TopicPartition partition = new TopicPartition(topic, 0);
    page("groups", () -> of(admin.listConsumerGroups().all()).stream().map(g -> g.groupId()).toList().contains(group));
    page("group", () -> {
      var described = of(admin.describeConsumerGroups(List.of(group)).all()).get(group);
      return described.members().size() + " " + described.coordinator().id();
    });
    page("lag", () -> of(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition).offset());
    page("reset", () -> {
      Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
      offsets.put(partition, new OffsetAndMetadata(1));
      of(admin.alterConsumerGroupOffsets(group, offsets).all());
      return of(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(partition).offset();
    });
    page("forget offsets", () -> of(admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all()));
    page("delete group", () -> of(admin.deleteConsumerGroups(List.of(group)).all()));
  }
}
