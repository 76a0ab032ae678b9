package peer;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;

import org.omg.CORBA.ORB;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;

/** The ORB and the command line of both programs. */
final class Start {
    /** The words of the command line that are not parsed yet. */
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

    static ORB orb() {
        return ORB.init(new String[0], Product.settings());
    }

    static POA rootPoa(ORB orb) throws org.omg.CORBA.UserException {
        POA poa = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
        poa.the_POAManager().activate();
        return poa;
    }

    /** Returns the word if it is a reference, else the reference in the file of that name. */
    static String reference(String word) throws IOException {
        if (word.startsWith("IOR:") || word.startsWith("corbaloc:")) {
            return word;
        }
        return new String(Files.readAllBytes(Path.of(word)), StandardCharsets.US_ASCII).trim();
    }
}
