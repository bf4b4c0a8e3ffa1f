import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Gives a client, from 2.0 on, the token in the file that the option `file` of its JAAS line names. */
public class JavaToken implements AuthenticateCallbackHandler {
  private String path;

  public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
    path = (String) entries.get(0).getOptions().get("file");
  }

  public void handle(Callback[] callbacks) throws IOException {
    for (Callback callback : callbacks) {
      if (callback instanceof OAuthBearerTokenCallback) {
        ((OAuthBearerTokenCallback) callback).token(new Token(Files.readString(Paths.get(path))));
      }
    }
  }

  public void close() {}

  record Token(String value) implements OAuthBearerToken {
    public Set<String> scope() {
      return Collections.emptySet();
    }

    public long lifetimeMs() {
      return System.currentTimeMillis() + 300_000;
    }

    public String principalName() {
      return "unused";
    }

    public Long startTimeMs() {
      return null;
    }
  }
}
