import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.internals.AsyncKafkaConsumer;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceData;
import org.apache.kafka.clients.consumer.internals.StreamsRebalanceListener;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Groups that are no consumer groups, for tests: `share SERVERS TOPIC GROUP`, `streams SERVERS TOPIC GROUP OFFSET`. */
public class OtherGroups {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[1]);
        settings.put("group.id", args[3]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (args[0].equals("share")) {
            share(settings, args[2]);
        } else {
            streams(settings, args[2], Long.parseLong(args[4]));
        }
    }

    /** Reads and acknowledges some records. */
    static void share(Properties settings, String topic) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            var group = new ConfigResource(ConfigResource.Type.GROUP, settings.getProperty("group.id"));
            var entry = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
        settings.put("max.poll.records", "5");
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(settings)) {
            consumer.subscribe(List.of(topic));
            int read = 0;
            while (read < 5) {
                read += consumer.poll(Duration.ofMillis(200)).count();
            }
            consumer.commitSync();
        }
    }

    /** Joins as a Kafka Streams application with `group.protocol=streams` does, and commits an offset of partition 0. */
    static void streams(Properties settings, String topic, long offset) {
        settings.put("group.protocol", "consumer");
        settings.put("enable.auto.commit", "false");
        var subtopology = new StreamsRebalanceData.Subtopology(Set.of(topic), Set.of(), Map.of(), Map.of(), List.of());
        var data = new StreamsRebalanceData(
            UUID.randomUUID(), Optional.empty(), Optional.empty(), Map.of("0", subtopology), Map.of());
        boolean[] assigned = {false};
        var listener = new StreamsRebalanceListener() {
            public void onTasksRevoked(Set<StreamsRebalanceData.TaskId> tasks) {}

            public void onTasksAssigned(StreamsRebalanceData.Assignment assignment) {
                data.setReconciledAssignment(assignment);
                assigned[0] = !assignment.activeTasks().isEmpty();
            }

            public void onAllTasksLost() {}
        };
        var bytes = new ByteArrayDeserializer();
        try (var consumer =
                new AsyncKafkaConsumer<>(new ConsumerConfig(settings), bytes, bytes, Optional.of(data))) {
            consumer.subscribe(Set.of(topic), listener);
            while (!assigned[0]) {
                consumer.poll(Duration.ofMillis(200));
            }
            consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset)));
        }
    }
}
