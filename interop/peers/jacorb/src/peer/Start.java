package peer;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Properties;

import org.omg.CORBA.ORB;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;

/** The ORB as both programs want it, and their command line. */
final class Start {
    /** Words of the command line not yet read. */
    private final Deque<String> words;

    Start(String[] arguments) {
        words = new ArrayDeque<>(Arrays.asList(arguments));
    }

    boolean more() {
        return !words.isEmpty();
    }

    String next() {
        if (words.isEmpty()) {
            System.err.println("a value is missing at the end of the command line");
            System.exit(2);
        }
        return words.pop();
    }

    int number() {
        return Integer.parseInt(next());
    }

    static void unknown(String word) {
        System.err.println("unknown argument " + word);
        System.exit(2);
    }

    /** JacORB's own settings come as -D properties of the virtual machine and win over these. */
    static ORB orb() {
        Properties wanted = new Properties();
        wanted.put("org.omg.CORBA.ORBClass", "org.jacorb.orb.ORB");
        wanted.put("org.omg.CORBA.ORBSingletonClass", "org.jacorb.orb.ORBSingleton");
        wanted.put("OAIAddr", "127.0.0.1");
        wanted.put("jacorb.poa.queue_wait", "on");
        // Nested calls of many threads hold a thread for each level.
        wanted.put("jacorb.poa.thread_pool_max", "64");
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("jacorb.") || name.startsWith("OA")) {
                wanted.put(name, System.getProperty(name));
            }
        }
        return ORB.init(new String[0], wanted);
    }

    static POA rootPoa(ORB orb) throws org.omg.CORBA.UserException {
        POA poa = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
        poa.the_POAManager().activate();
        return poa;
    }

    /** The reference itself, or the one in the file of that name. */
    static String reference(String word) throws IOException {
        if (word.startsWith("IOR:") || word.startsWith("corbaloc:")) {
            return word;
        }
        return new String(Files.readAllBytes(Path.of(word)), StandardCharsets.US_ASCII).trim();
    }
}
