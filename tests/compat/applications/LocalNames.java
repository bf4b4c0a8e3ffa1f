import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Names principals by Kafka's own rules: lines of rules, a tab, a principal; one answer for each. */
public final class LocalNames {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            try {
                var namer = KerberosShortNamer.fromUnparsedRules(arguments[0], List.of(parts[0].split(",")));
                System.out.println("=" + namer.shortName(KerberosName.parse(parts[1])));
            } catch (Exception none) {
                System.out.println("none");
            }
        }
    }
}
