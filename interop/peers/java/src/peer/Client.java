package peer;

import Interop.*;
import Interop.RightPackage.Turned;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Function;

import org.omg.CORBA.Any;
import org.omg.CORBA.AnyHolder;
import org.omg.CORBA.ORB;
import org.omg.CORBA.SystemException;
import org.omg.CORBA.portable.Streamable;
import org.omg.PortableServer.POA;

/**
 * Client REFERENCE [options]
 *
 * <p>Calls every operation of interop.idl on the Suite at REFERENCE (IOR:, corbaloc:, or a file with
 * such a text), and verifies all results. Prints "ok NAME" or "FAIL NAME ..." for each check, and
 * finally "N passed, M failed".
 *
 * <pre>
 *   --no-wide          leave out wide characters (GIOP 1.0)
 *   --chars WHICH      characters of narrow strings: ascii (default), latin1 or unicode;
 *                      latin1-strings: single characters are ASCII
 *   --skip NAME        leave out the check of that name
 *   --rounds N         values per operation (6)
 *   --big OCTETS       size of the largest message (1000000); 0 leaves large messages out
 *   --threads N        concurrent callers (8); 0 leaves them out
 *   --slow MS          duration of their slow operation (50)
 *   --meet N           callers that must be inside the server at once (all; 0: not checked)
 *   --shutdown         finally shut the server down
 * </pre>
 *
 * <p>The ORB's own settings (jacorb.giop_minor_version, com.sun.corba.ee.giop.ORBGIOPVersion) are -D
 * properties.
 */
public final class Client {
    private static final int FIFTEEN_SECONDS = 15_000;

    private final Suite suite;
    private final BouncerServant servant;
    private final Bouncer mine;
    private final Set<String> skipped;
    private int passed;
    private int failed;

    private Client(Suite suite, BouncerServant servant, Bouncer mine, Set<String> skipped) {
        this.suite = suite;
        this.servant = servant;
        this.mine = mine;
        this.skipped = skipped;
    }

    public static void main(String[] arguments) throws Exception {
        Start start = new Start(arguments);
        String reference = null;
        boolean wide = true;
        boolean shutdown = false;
        Set<String> skipped = new HashSet<>();
        int rounds = 6;
        int big = 1_000_000;
        int threads = 8;
        int slow = 50;
        int meet = -1;
        while (start.more()) {
            String word = start.next();
            switch (word) {
                case "--no-wide": wide = false; break;
                case "--chars": Values.repertoire = start.next(); break;
                case "--skip": skipped.add(start.next()); break;
                case "--rounds": rounds = start.number(); break;
                case "--big": big = start.number(); break;
                case "--threads": threads = start.number(); break;
                case "--slow": slow = start.number(); break;
                case "--meet": meet = start.number(); break;
                case "--shutdown": shutdown = true; break;
                default:
                    if (reference != null || word.startsWith("-")) {
                        Start.unknown(word);
                    }
                    reference = Start.reference(word);
            }
        }
        ORB orb = Start.orb();
        POA poa = Start.rootPoa(orb);
        BouncerServant servant = new BouncerServant();
        Bouncer mine = BouncerHelper.narrow(poa.servant_to_reference(servant));
        Suite suite;
        try {
            suite = SuiteHelper.narrow(orb.string_to_object(reference));
        } catch (SystemException problem) {
            System.out.println("FAIL narrow " + problem);
            System.exit(1);
            return;
        }
        Client client = new Client(suite, servant, mine, skipped);
        client.echoes(rounds, wide);
        client.references();
        client.dynamics(rounds);
        client.failures();
        client.theRest(wide);
        for (int size = 1000; size <= big; size *= 10) {
            client.bigMessages(size);
        }
        if (threads > 0) {
            client.concurrent(threads, slow, meet < 0 ? threads : meet);
        }
        if (shutdown) {
            client.check("shutdown", () -> {
                suite.shutdown();
                return "";
            });
        }
        System.out.println(client.passed + " passed, " + client.failed + " failed");
        orb.shutdown(false);
        System.exit(client.failed == 0 ? 0 : 1);
    }

    /** Runs a check. The check fails if it returns a text or throws an exception. */
    private void check(String name, Callable<String> work) {
        if (skipped.contains(name)) {
            return;
        }
        String trouble;
        try {
            trouble = work.call();
        } catch (Throwable raised) {
            Throwable real = raised instanceof InvocationTargetException ? raised.getCause() : raised;
            trouble = "got exception " + real;
        }
        synchronized (this) {
            if (trouble.isEmpty()) {
                passed += 1;
                System.out.println("ok " + name);
            } else {
                failed += 1;
                System.out.println("FAIL " + name + " " + trouble.replace('\n', ' '));
            }
        }
    }

    private static String unequal(String where, Object expected, Object got) {
        if (Values.same(expected, got)) {
            return "";
        }
        return where + " expected " + Values.show(expected) + " got " + Values.show(got) + " ";
    }

    private static String sameObject(String where, org.omg.CORBA.Object expected, org.omg.CORBA.Object got) {
        boolean equal = expected == null ? got == null : got != null && expected._is_equivalent(got);
        return equal ? "" : where + " is another object ";
    }

    private void echoes(int rounds, boolean wide) {
        List<String> wideNames = Arrays.stream(WideOperations.class.getMethods()).map(Method::getName).toList();
        List<String> objectNames = Arrays.stream(ObjectsOperations.class.getMethods()).map(Method::getName).toList();
        Method[] methods = SuiteOperations.class.getMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method method : methods) {
            String name = method.getName();
            boolean wanted = name.startsWith("echo_") && !objectNames.contains(name) && (wide || !wideNames.contains(name));
            if (wanted) {
                check(name, () -> echo(method, rounds));
            }
            if (wanted && !name.equals("echo_any")) {
                check("any(" + name.substring("echo_".length()) + ")", () -> inAny(method, rounds));
            }
        }
    }

    private String echo(Method method, int rounds) throws ReflectiveOperationException {
        Class<?>[] types = method.getParameterTypes();
        Field value = types[1].getField("value");
        for (int round = 0; round < rounds; round++) {
            Object a = new Values(round).make(method.getName(), types[0]);
            Object b = new Values(round + 1).make(method.getName(), types[0]);
            Object inout = types[1].getConstructor().newInstance();
            Object out = types[2].getConstructor().newInstance();
            value.set(inout, b);
            Object result = method.invoke(suite, a, inout, out);
            String trouble = unequal("result", a, result) + unequal("inout", a, value.get(inout)) + unequal("out", b, value.get(out));
            if (!trouble.isEmpty()) {
                return "round " + round + " " + trouble;
            }
        }
        return "";
    }

    /** Checks a value of the operation's parameter type in an any, and the any nested in two further anys. */
    private String inAny(Method method, int rounds) throws ReflectiveOperationException {
        Class<?>[] types = method.getParameterTypes();
        for (int round = 0; round < rounds; round++) {
            Any any = ORB.init().create_any();
            insert(any, method.getName(), new Values(round).make(method.getName(), types[0]), types[1]);
            Any within = ORB.init().create_any();
            within.insert_any(any);
            Any nested = ORB.init().create_any();
            nested.insert_any(within);
            AnyHolder inout = new AnyHolder(nested);
            AnyHolder out = new AnyHolder();
            Any result = suite.echo_any(any, inout, out);
            String trouble = unequal("result", any, result) + unequal("inout", any, inout.value) + unequal("out", nested, out.value);
            if (!trouble.isEmpty()) {
                return "round " + round + " " + trouble;
            }
        }
        return "";
    }

    /**
     * Inserts a value into an any by its holder. Values whose types Java cannot distinguish are inserted
     * explicitly: wide and narrow text, bounded strings and aliases.
     */
    private static void insert(Any any, String operation, Object value, Class<?> holderType) throws ReflectiveOperationException {
        switch (operation) {
            case "echo_wchar": any.insert_wchar((char) value); break;
            case "echo_wstring": any.insert_wstring((String) value); break;
            case "echo_string": any.insert_string((String) value); break;
            case "echo_short_wide_name": Product.insert(any, ShortWideNameHelper.type(), out -> out.write_wstring((String) value)); break;
            case "echo_short_name": Product.insert(any, ShortNameHelper.type(), out -> out.write_string((String) value)); break;
            case "echo_customer_id": CustomerIdHelper.insert(any, (int) value); break;
            default:
                Streamable holder = (Streamable) holderType.getConstructor().newInstance();
                holderType.getField("value").set(holder, value);
                Product.insert(any, holder._type(), holder::_write);
        }
    }

    /** Echoes an any. Returns the texts of the result, of the inout parameter and of the nested any. */
    private String returned(Consumer<Any> put, Function<Any, String> look) {
        Any any = ORB.init().create_any();
        put.accept(any);
        Any within = ORB.init().create_any();
        within.insert_any(any);
        Any nested = ORB.init().create_any();
        nested.insert_any(within);
        AnyHolder inout = new AnyHolder(nested);
        AnyHolder out = new AnyHolder();
        Any result = suite.echo_any(any, inout, out);
        return look.apply(result) + look.apply(inout.value) + look.apply(out.value.extract_any().extract_any());
    }

    /** Checks references and TypeCodes. */
    private void referencesInAny() {
        check("any(bouncer)", () -> returned(any -> BouncerHelper.insert(any, mine),
            any -> sameObject("bouncer", mine, BouncerHelper.extract(any))));
        check("any(object)", () -> returned(any -> any.insert_Object(suite),
            any -> sameObject("object", suite, any.extract_Object())));
        check("any(bouncer_seq)", () -> returned(any -> Product.insert(any, BouncerSeqHelper.type(),
                out -> BouncerSeqHelper.write(out, new Bouncer[] {mine, null})), any -> {
            Bouncer[] got = BouncerSeqHelper.extract(any);
            return unequal("length", 2, got.length) + sameObject("first", mine, got[0]) + sameObject("second", null, got[1]);
        }));
        check("any(link)", () -> returned(any -> Product.insert(any, LinkHelper.type(),
                out -> LinkHelper.write(out, new Link("label", mine, suite))), any -> {
            Link got = LinkHelper.extract(any);
            return unequal("label", "label", got.label) + sameObject("target", mine, got.target)
                + sameObject("anything", suite, got.anything);
        }));
        check("any(type_code)", () -> returned(any -> any.insert_TypeCode(RecordHelper.type()),
            any -> any.extract_TypeCode().equal(RecordHelper.type()) ? "" : "another TypeCode "));
    }

    private void references() {
        Bouncer theirs = suite.server_bouncer();
        referencesInAny();
        check("echo_bouncer", () -> {
            BouncerHolder inout = new BouncerHolder(theirs);
            BouncerHolder out = new BouncerHolder();
            Bouncer result = suite.echo_bouncer(mine, inout, out);
            String trouble = sameObject("result", mine, result) + sameObject("inout", mine, inout.value)
                + sameObject("out", theirs, out.value);
            inout.value = null;
            result = suite.echo_bouncer(theirs, inout, out);
            return trouble + sameObject("result", theirs, result) + sameObject("inout", theirs, inout.value)
                + sameObject("out", null, out.value);
        });
        check("echo_object", () -> {
            org.omg.CORBA.ObjectHolder inout = new org.omg.CORBA.ObjectHolder(theirs);
            org.omg.CORBA.ObjectHolder out = new org.omg.CORBA.ObjectHolder();
            Bouncer narrowed = BouncerHelper.narrow(suite.echo_object(mine, inout, out));
            return sameObject("result", mine, narrowed) + sameObject("inout", mine, inout.value)
                + sameObject("out", theirs, out.value) + (narrowsToBase(out.value) ? "a Bouncer was narrowed to Base" : "");
        });
        check("echo_bouncer_seq", () -> {
            BouncerSeqHolder inout = new BouncerSeqHolder(new Bouncer[0]);
            BouncerSeqHolder out = new BouncerSeqHolder();
            Bouncer[] result = suite.echo_bouncer_seq(new Bouncer[] {mine, null, theirs}, inout, out);
            if (result.length != 3 || inout.value.length != 3 || out.value.length != 0) {
                return "lengths";
            }
            return sameObject("result[0]", mine, result[0]) + sameObject("result[1]", null, result[1])
                + sameObject("inout[2]", theirs, inout.value[2]);
        });
        check("echo_link", () -> {
            LinkHolder inout = new LinkHolder(new Link("two", null, null));
            LinkHolder out = new LinkHolder();
            Link result = suite.echo_link(new Link("one", mine, suite), inout, out);
            return unequal("label", "one", result.label) + sameObject("target", mine, result.target)
                + sameObject("anything", suite, inout.value.anything) + unequal("label", "two", out.value.label)
                + sameObject("target", null, out.value.target);
        });
        check("call_back", () -> unequal("result", 41, suite.call_back(mine, Failure.FAIL_NOT, 41, "none")));
        check("send_back", () -> {
            List<Integer> values = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                values.add(i);
            }
            suite.send_back(mine, values.stream().mapToInt(i -> i).toArray());
            return unequal("values", values.toString(), servant.await(20, FIFTEEN_SECONDS).toString());
        });
        check("bounce", () -> unequal("result", 9, theirs.bounce(mine, 9)));
    }

    private static boolean narrowsToBase(org.omg.CORBA.Object object) {
        try {
            return BaseHelper.narrow(object) != null;
        } catch (org.omg.CORBA.BAD_PARAM refused) {
            return false;
        }
    }

    private void dynamics(int rounds) {
        // The generated code ignores context clauses, so the server receives no properties.
        check("properties", () -> unequal("properties", new String[] {"text"}, suite.properties("text")));
        check("pack", () -> {
            for (int round = 0; round < rounds; round++) {
                Object value = new Values(round).make("pack", Interop.Record.class);
                org.omg.CORBA.Any any = suite.pack((Interop.Record) value);
                String trouble = unequal("value", value, RecordHelper.extract(any));
                if (!trouble.isEmpty()) {
                    return trouble;
                }
            }
            return "";
        });
        check("unpack", () -> {
            for (int round = 0; round < rounds; round++) {
                Object value = new Values(round).make("unpack", Interop.Record.class);
                org.omg.CORBA.Any any = ORB.init().create_any();
                Product.insert(any, RecordHelper.type(), out -> RecordHelper.write(out, (Interop.Record) value));
                String trouble = unequal("value", value, suite.unpack(any));
                if (!trouble.isEmpty()) {
                    return trouble;
                }
            }
            org.omg.CORBA.Any other = ORB.init().create_any();
            other.insert_long(1);
            try {
                suite.unpack(other);
                return "expected Plain got a result";
            } catch (Plain raised) {
                return "";
            }
        });
    }

    private interface Failing {
        int fail(Failure kind, int code, String text) throws Plain, Reason, Details;
    }

    private void exceptions(String name, Failing call) {
        check(name + "(FAIL_NOT)", () -> unequal("result", 7, call.fail(Failure.FAIL_NOT, 7, "")));
        check(name + "(FAIL_PLAIN)", () -> {
            try {
                call.fail(Failure.FAIL_PLAIN, 1, "x");
                return "expected Plain got a result";
            } catch (Plain raised) {
                return "";
            }
        });
        check(name + "(FAIL_REASON)", () -> {
            try {
                call.fail(Failure.FAIL_REASON, -5, "no luck");
                return "expected Reason got a result";
            } catch (Reason raised) {
                return unequal("code", -5, raised.code) + unequal("why", "no luck", raised.why);
            }
        });
        check(name + "(FAIL_DETAILS)", () -> {
            try {
                call.fail(Failure.FAIL_DETAILS, 77, "long story");
                return "expected Details got a result";
            } catch (Details got) {
                Details wanted = Told.details(77, "long story");
                return unequal("numbers", wanted.numbers, got.numbers) + unequal("words", wanted.words, got.words)
                    + unequal("place", wanted.place, got.place) + unequal("choice", wanted.choice, got.choice);
            }
        });
    }

    private void failures() {
        exceptions("fail", suite::fail);
        exceptions("call_back", (kind, code, text) -> suite.call_back(mine, kind, code, text));
        for (String name : Told.SYSTEM_EXCEPTIONS) {
            check("fail_system(" + name + ")", () -> {
                for (short completed = 0; completed < 3; completed++) {
                    int minor = completed == 1 ? 0x4f4d0001 : 0x12345678 + completed;
                    try {
                        suite.fail_system(name, minor, completed);
                        return "expected an exception got a result";
                    } catch (SystemException got) {
                        String trouble = unequal("name", name, got.getClass().getSimpleName()) + unequal("minor", minor, got.minor)
                            + unequal("completed", (int) completed, got.completed.value());
                        if (!trouble.isEmpty()) {
                            return trouble;
                        }
                    }
                }
                return "";
            });
        }
        check("fail_system(none)", () -> {
            suite.fail_system("none", 0, (short) 0);
            return "";
        });
        check("gone", () -> {
            try {
                return "expected OBJECT_NOT_EXIST got " + suite.gone().base_name();
            } catch (org.omg.CORBA.OBJECT_NOT_EXIST raised) {
                return "";
            }
        });
    }

    private void theRest(boolean wide) {
        check("server_constants", () -> {
            Constants mineOnes = new SuiteRest(null, null).server_constants();
            return unequal("constants", mineOnes, suite.server_constants());
        });
        if (wide) {
            check("wide_constants", () -> {
                org.omg.CORBA.CharHolder letter = new org.omg.CORBA.CharHolder();
                org.omg.CORBA.StringHolder text = new org.omg.CORBA.StringHolder();
                suite.wide_constants(letter, text);
                return unequal("letter", A_WCHAR.value, letter.value) + unequal("text", A_WSTRING.value, text.value);
            });
        }
        check("attributes", () -> {
            if (suite.implementation().isEmpty()) {
                return "no implementation named";
            }
            int[] marks = {1, -1, 0};
            suite.level(-17);
            suite.title("a title");
            suite.marks(marks);
            suite.paint(Colour.BLUE);
            return unequal("origin", new Point(0, -1), suite.origin()) + unequal("level", -17, suite.level())
                + unequal("title", "a title", suite.title()) + unequal("marks", marks, suite.marks())
                + unequal("paint", Colour.BLUE, suite.paint());
        });
        check("note", () -> {
            org.omg.CORBA.LongHolder sum = new org.omg.CORBA.LongHolder();
            suite.take_notes(sum);
            long expected = 0;
            for (int i = 0; i < 200; i++) {
                suite.note(i * 1000, "a note");
                expected += i * 1000L;
            }
            int seen = suite.await_notes(200, 10_000);
            int taken = suite.take_notes(sum);
            return unequal("count", 200, seen) + unequal("taken", 200, taken) + unequal("sum", expected, sum.value);
        });
        check("inheritance", this::inheritance);
        check("bench", () -> {
            Bench bench = suite.server_bench();
            bench.nothing();
            bench.bench_oneway((byte) 1);
            int[] longs = {1, 2, -3};
            byte[] octets = {4, 5, -6, 7};
            return unequal("octet", (byte) 200, bench.bench_octet((byte) 200)) + unequal("long", -3, bench.bench_long(-3))
                + unequal("point", new Point(1, 2), bench.bench_point(new Point(1, 2)))
                + unequal("longs", longs, bench.bench_longs(longs)) + unequal("octets", octets, bench.bench_octets(octets))
                + unequal("string", "some text", bench.bench_string("some text"));
        });
    }

    private String inheritance() {
        Base base = suite.server_bottom();
        Bottom bottom = BottomHelper.narrow(base);
        Right right = RightHelper.narrow(base);
        String trouble = "";
        try {
            BouncerHelper.narrow(base);
            trouble = "the base narrows to Bouncer ";
        } catch (org.omg.CORBA.BAD_PARAM refused) {
            // The exception is the expected outcome.
        }
        int turned = 0;
        String names = "";
        try {
            names = base.base_name() + " " + bottom.left_name() + " " + right.right_name(0) + " " + bottom.bottom_name() + " "
                + bottom.base_name();
            bottom.right_name(45);
        } catch (Turned raised) {
            turned = raised.angle;
        }
        right.shared(99);
        Base[] copies = bottom.copies(3);
        return trouble + unequal("names", "base left right bottom base", names) + unequal("shared", 99, bottom.shared())
            + unequal("angle", 45, turned) + unequal("copies", 3, copies.length) + sameObject("copy", base, copies[2])
            + (base._is_a("IDL:corelane/Interop/Left:1.0") ? "" : "_is_a Left is false ")
            + (base._is_a("IDL:corelane/Interop/Nothing:1.0") ? "_is_a Nothing is true " : "")
            + (base._non_existent() ? "_non_existent is true" : "");
    }

    private void bigMessages(int size) {
        check("big octets " + size, () -> {
            byte[] a = new byte[size];
            byte[] b = new byte[size / 2];
            for (int i = 0; i < size; i++) {
                a[i] = (byte) (i * 7 + i / 256);
            }
            for (int i = 0; i < size / 2; i++) {
                b[i] = (byte) (i * 5 + i / 256);
            }
            OctetSeqHolder inout = new OctetSeqHolder(b);
            OctetSeqHolder out = new OctetSeqHolder();
            byte[] result = suite.echo_octet_seq(a, inout, out);
            boolean equal = Arrays.equals(a, result) && Arrays.equals(a, inout.value) && Arrays.equals(b, out.value);
            return equal ? "" : "octets differ";
        });
        check("big persons " + size, () -> {
            Values values = new Values(2);
            Person[] a = new Person[size / 100];
            for (int i = 0; i < a.length; i++) {
                a[i] = (Person) values.make("", Person.class);
            }
            PersonSeqHolder inout = new PersonSeqHolder(new Person[0]);
            PersonSeqHolder out = new PersonSeqHolder();
            Person[] result = suite.echo_person_seq(a, inout, out);
            boolean equal = equal(a, result) && equal(a, inout.value) && out.value.length == 0;
            return equal ? "" : "persons differ";
        });
    }

    /** Compares arrays of Person. Values.same is too slow for a hundred thousand values. */
    private static boolean equal(Person[] some, Person[] others) {
        return Arrays.equals(some, others, (x, y) -> x.full_name.equals(y.full_name) && x.age == y.age
                && Arrays.equals(x.nicknames, y.nicknames) && x.code.equals(y.code)
                && x.favourite.value() == y.favourite.value() ? 0 : 1);
    }

    private void concurrent(int threads, int slow, int meet) throws InterruptedException {
        Bouncer theirs = suite.server_bouncer();
        long began = System.nanoTime();
        inThreads(threads, t -> check("thread " + t, () -> {
            String trouble = "";
            for (int i = 0; i < 5 && trouble.isEmpty(); i++) {
                int value = t * 1000 + i;
                suite.sleep(slow);
                trouble += unequal("echo_long", value,
                    suite.echo_long(value, new org.omg.CORBA.IntHolder(i), new org.omg.CORBA.IntHolder()));
                trouble += unequal("bounce", 6, theirs.bounce(mine, 6));
                int[] longs = new int[1000];
                Arrays.setAll(longs, n -> value + n);
                trouble += unequal("echo_long_seq", longs,
                    suite.echo_long_seq(longs, new LongSeqHolder(new int[0]), new LongSeqHolder()));
            }
            return trouble;
        }));
        System.out.println("took " + (System.nanoTime() - began) / 1_000_000 + " ms with " + threads + " threads");
        if (meet > 0) {
            AtomicInteger most = new AtomicInteger();
            inThreads(meet, t -> most.accumulateAndGet(suite.meet(meet, 20_000), Math::max));
            check("meet", () -> unequal("callers inside at once", meet, most.get()));
        }
    }

    private static void inThreads(int count, java.util.function.IntConsumer work) throws InterruptedException {
        List<Thread> all = new ArrayList<>();
        for (int t = 0; t < count; t++) {
            int number = t;
            Thread thread = new Thread(() -> work.accept(number));
            thread.start();
            all.add(thread);
        }
        for (Thread thread : all) {
            thread.join();
        }
    }
}
