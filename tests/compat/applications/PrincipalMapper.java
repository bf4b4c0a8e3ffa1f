import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Names subjects by Kafka's own rules: lines of rules, a tab, a subject; one answer for each. */
public final class PrincipalMapper {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new java.io.PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            SslPrincipalMapper mapper;
            try {
                mapper = SslPrincipalMapper.fromRules(parts[0]);
            } catch (RuntimeException refused) {
                output.println("refused");
                continue;
            }
            try {
                output.println("=" + mapper.getName(parts[1]));
            } catch (SslPrincipalMapper.NoMatchingRule none) {
                output.println("none");
            } catch (RuntimeException broken) {
                output.println("broken");
            }
        }
    }
}
