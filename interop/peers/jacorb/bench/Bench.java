import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Properties;
import java.util.Set;

import Cubit.Mixed;
import Cubit.Target;
import Cubit.TargetHelper;
import Cubit.TargetPOA;
import org.omg.CORBA.ORB;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;

/**
 * JacORB's side of `corelane bench`, with crates/bench/idl/cubit.idl: Bench --serve, or Bench
 * REFERENCE.
 *
 * The program uses the line protocol of interop/peers/omniorb/bench.cc. Before the first run of an
 * operation it makes warm-up calls, so that the virtual machines of both sides compile the code.
 */
public final class Bench {
    /**
     * Bounds of the warm-up before the first run of an operation: the time in nanoseconds, and the
     * maximum number of calls.
     */
    private static final long WARM = 1_500_000_000L;
    private static final int WARM_CALLS = 30_000;

    private static final class Servant extends TargetPOA {
        @Override public void echo_nothing() {}
        @Override public byte echo_octet(byte v) { return v; }
        @Override public short echo_short(short v) { return v; }
        @Override public int echo_long(int v) { return v; }
        @Override public Mixed echo_struct(Mixed v) { return v; }
        @Override public int[] echo_longs(int[] v) { return v; }
        @Override public Mixed[] echo_structs(Mixed[] v) { return v; }
        @Override public byte[] echo_octets(byte[] v) { return v; }
        @Override public String echo_string(String v) { return v; }
        @Override public void take_octet(byte v) {}
        @Override public int take_longs(int[] v) { return v.length; }
        @Override public int take_octets(byte[] v) { return v.length; }
    }

    private interface Call {
        void make();
    }

    private static void expect(boolean holds) {
        if (!holds) {
            throw new IllegalStateException("the reply is not what was sent");
        }
    }

    private static int length(String op, String prefix) {
        String rest = op.substring(prefix.length());
        int length = Integer.parseInt(rest);
        expect(length >= 0 && length <= 64 << 20);
        return length;
    }

    private static boolean same(Mixed a, Mixed b) {
        return a.o == b.o && a.l == b.l && a.s == b.s;
    }

    /**
     * Returns the call of an operation. For sequences, the whole reply is compared once before the
     * measurement. Timed replies are compared only by length and last element.
     */
    private static Call of(Target t, String op) {
        switch (op) {
            case "nothing": return t::echo_nothing;
            case "octet": return () -> expect(t.echo_octet((byte) 7) == 7);
            case "short": return () -> expect(t.echo_short((short) -7) == -7);
            case "long": return () -> expect(t.echo_long(70000) == 70000);
            case "oneway": return () -> t.take_octet((byte) 7);
            case "struct":
                Mixed one = new Mixed((byte) 1, 2, (short) 3);
                return () -> expect(same(t.echo_struct(one), one));
            default: break;
        }
        if (op.startsWith("longs")) {
            int[] sent = new int[length(op, "longs")];
            for (int i = 0; i < sent.length; ++i) sent[i] = i;
            expect(Arrays.equals(t.echo_longs(sent), sent));
            int last = sent.length - 1;
            return () -> {
                int[] got = t.echo_longs(sent);
                expect(got.length == sent.length && (last < 0 || got[last] == sent[last]));
            };
        }
        if (op.startsWith("structs")) {
            Mixed[] sent = new Mixed[length(op, "structs")];
            for (int i = 0; i < sent.length; ++i) sent[i] = new Mixed((byte) 1, i, (short) 3);
            Mixed[] first = t.echo_structs(sent);
            expect(first.length == sent.length);
            for (int i = 0; i < sent.length; ++i) expect(same(first[i], sent[i]));
            int last = sent.length - 1;
            return () -> {
                Mixed[] got = t.echo_structs(sent);
                expect(got.length == sent.length && (last < 0 || same(got[last], sent[last])));
            };
        }
        if (op.startsWith("octets")) {
            byte[] sent = new byte[length(op, "octets")];
            for (int i = 0; i < sent.length; ++i) sent[i] = (byte) i;
            expect(Arrays.equals(t.echo_octets(sent), sent));
            int last = sent.length - 1;
            return () -> {
                byte[] got = t.echo_octets(sent);
                expect(got.length == sent.length && (last < 0 || got[last] == sent[last]));
            };
        }
        if (op.startsWith("string")) {
            String sent = "x".repeat(length(op, "string"));
            expect(t.echo_string(sent).equals(sent));
            return () -> expect(t.echo_string(sent).length() == sent.length());
        }
        if (op.startsWith("take_longs")) {
            int[] sent = new int[length(op, "take_longs")];
            for (int i = 0; i < sent.length; ++i) sent[i] = i;
            return () -> expect(t.take_longs(sent) == sent.length);
        }
        if (op.startsWith("take_octets")) {
            byte[] sent = new byte[length(op, "take_octets")];
            for (int i = 0; i < sent.length; ++i) sent[i] = (byte) i;
            return () -> expect(t.take_octets(sent) == sent.length);
        }
        throw new IllegalArgumentException("there is no operation " + op);
    }

    private static String run(Target t, String op, int warmUp, int count, boolean first) {
        Call call = of(t, op);
        long until = System.nanoTime() + WARM;
        for (int i = 0; first && i < WARM_CALLS && System.nanoTime() < until; ++i) {
            call.make();
        }
        for (int i = 0; i < warmUp; ++i) {
            call.make();
        }
        boolean oneway = op.equals("oneway");
        if (oneway) {
            t.echo_nothing();
        }
        long[] times = new long[count];
        long began = System.nanoTime();
        long last = began;
        for (int i = 0; i < count; ++i) {
            call.make();
            long now = System.nanoTime();
            times[i] = now - last;
            last = now;
        }
        if (oneway) {
            t.echo_nothing();
        }
        StringBuilder line = new StringBuilder("times ").append(System.nanoTime() - began);
        for (long time : times) {
            line.append(' ').append(time);
        }
        return line.toString();
    }

    private static void serve(ORB orb, BufferedReader in, PrintStream out) throws Exception {
        POA poa = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
        poa.the_POAManager().activate();
        out.println("ready " + orb.object_to_string(poa.servant_to_reference(new Servant())));
        while (in.readLine() != null) {}
    }

    private static void call(ORB orb, String reference, BufferedReader in, PrintStream out) throws IOException {
        Target target = TargetHelper.narrow(orb.string_to_object(reference));
        out.println("ready");
        Set<String> warm = new HashSet<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words.length != 4 || !words[0].equals("run")) {
                out.println("error not understood: " + line);
                continue;
            }
            try {
                out.println(run(target, words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), warm.add(words[1])));
            } catch (RuntimeException trouble) {
                out.println("error " + trouble);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: Bench --serve | REFERENCE");
            System.exit(2);
        }
        Properties wanted = new Properties();
        wanted.put("org.omg.CORBA.ORBClass", "org.jacorb.orb.ORB");
        wanted.put("org.omg.CORBA.ORBSingletonClass", "org.jacorb.orb.ORBSingleton");
        wanted.put("OAIAddr", "127.0.0.1");
        wanted.put("jacorb.poa.queue_wait", "on");
        ORB orb = ORB.init(new String[0], wanted);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        if (arguments[0].equals("--serve")) {
            serve(orb, in, out);
        } else {
            call(orb, arguments[0], in, out);
        }
        System.exit(0);
    }
}
