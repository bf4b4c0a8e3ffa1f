import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Assigns tasks by Kafka's own assignor. A case has a line of standbys, a line of subtopologies (name:tasks:stateful), a
 * line for each member (id, process, active, standby; tasks are name:partition) and an empty line; fields are divided
 * by tabs, lists by commas. The answer has a line for each member and an empty one.
 */
public final class StreamsTargets {
    private static final BufferedReader INPUT =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private record Topology(Map<String, String[]> parts) implements TopologyDescriber {
        @Override
        public List<String> subtopologies() {
            return new ArrayList<>(parts.keySet());
        }

        @Override
        public int maxNumInputPartitions(String name) {
            return Integer.parseInt(parts.get(name)[1]);
        }

        @Override
        public boolean isStateful(String name) {
            return parts.get(name)[2].equals("1");
        }
    }

    public static void main(String[] arguments) throws IOException {
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
            assign(line, output);
        }
        output.flush();
    }

    private static void assign(String standbys, PrintStream output) throws IOException {
        var parts = new TreeMap<String, String[]>();
        for (String part : INPUT.readLine().split(",")) {
            parts.put(part.split(":")[0], part.split(":"));
        }
        var members = new HashMap<String, AssignmentMemberSpec>();
        for (String line = INPUT.readLine(); !line.isEmpty(); line = INPUT.readLine()) {
            String[] fields = line.split("\t", -1);
            members.put(fields[0], new AssignmentMemberSpec(Optional.empty(), Optional.empty(), tasks(fields[2]),
                tasks(fields[3]), Map.of(), fields[1], Map.of(), Map.of(), Map.of()));
        }
        var group = new GroupSpecImpl(members, Map.of("num.standby.replicas", standbys));
        var targets = new StickyTaskAssignor().assign(group, new Topology(parts)).members();
        targets.forEach((member, target) -> output.println(
            member + "\t" + text(target.activeTasks()) + "\t" + text(target.standbyTasks())));
        output.println();
    }

    private static Map<String, Set<Integer>> tasks(String list) {
        var found = new HashMap<String, Set<Integer>>();
        for (String task : list.isEmpty() ? new String[0] : list.split(",")) {
            String[] parts = task.split(":");
            found.computeIfAbsent(parts[0], name -> new HashSet<>()).add(Integer.valueOf(parts[1]));
        }
        return found;
    }

    private static String text(Map<String, Set<Integer>> tasks) {
        var found = new ArrayList<String>();
        tasks.forEach((name, indexes) -> indexes.forEach(index -> found.add(name + ":" + index)));
        return String.join(",", found);
    }
}
