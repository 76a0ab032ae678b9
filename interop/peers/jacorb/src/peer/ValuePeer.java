package peer;

import InteropValues.Base;
import InteropValues.BaseHelper;
import InteropValues.BaseHolder;
import InteropValues.Choice;
import InteropValues.ChoiceHelper;
import InteropValues.ChoiceHolder;
import InteropValues.Described;
import InteropValues.DescribedHelper;
import InteropValues.DescribedHolder;
import InteropValues.Extended;
import InteropValues.Folder;
import InteropValues.FolderHelper;
import InteropValues.FolderHolder;
import InteropValues.Heavier;
import InteropValues.MoneyHelper;
import InteropValues.MoneyHolder;
import InteropValues.Node;
import InteropValues.NodeHelper;
import InteropValues.NodeHolder;
import InteropValues.NodeSeqHelper;
import InteropValues.NodeSeqHolder;
import InteropValues.Note;
import InteropValues.NoteHelper;
import InteropValues.OnCard;
import InteropValues.OnCardHelper;
import InteropValues.OnCardHolder;
import InteropValues.OnKey;
import InteropValues.OnKeyHelper;
import InteropValues.OnKeyHolder;
import InteropValues.PairHelper;
import InteropValues.PairHolder;
import InteropValues.Square;
import InteropValues.SquareHelper;
import InteropValues.Stamp;
import InteropValues.StampHelper;
import InteropValues.StampHolder;
import InteropValues.Thing;
import InteropValues.ThingHelper;
import InteropValues.ThingPOA;
import InteropValues.TitleHelper;
import InteropValues.TitleHolder;
import InteropValues.ValueSuite;
import InteropValues.ValueSuiteHelper;
import InteropValues.ValueSuitePOA;
import InteropValues.WidestHelper;
import InteropValues.WidestHolder;
import InteropValues.WordsHelper;
import InteropValues.WordsHolder;

import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

import org.omg.CORBA.Any;
import org.omg.CORBA.AnyHolder;
import org.omg.CORBA.DataInputStream;
import org.omg.CORBA.DataOutputStream;
import org.omg.CORBA.ORB;
import org.omg.CORBA.TCKind;
import org.omg.CORBA.TypeCodePackage.BadKind;
import org.omg.CORBA.portable.InputStream;
import org.omg.CORBA.portable.OutputStream;
import org.omg.CORBA.portable.StreamableValue;
import org.omg.CORBA.portable.ValueFactory;
import org.omg.PortableServer.POA;

/**
 * ValuePeer --ior FILE: serves InteropValues::ValueSuite until its shutdown operation, at most 240 s.
 *
 * <p>ValuePeer --call REFERENCE: calls the suite at REFERENCE, and prints {@code ok NAME} or {@code FAIL
 * NAME ...} for each check and finally {@code N passed, M failed}.
 */
public final class ValuePeer {
    private static final String STAMP = "IDL:corelane/InteropValues/Stamp:1.0";
    private static final Random RANDOM = new Random(20);
    private static int passed;
    private static int failed;

    private ValuePeer() {}

    // ---- values ----

    /** The implementation of Node. */
    public static final class NodeImpl extends Node {}

    /** The implementation of Base. */
    public static final class BaseImpl extends Base {}

    /** The implementation of Extended, which a receiver that does not know the type truncates to Base. */
    public static final class ExtendedImpl extends Extended {}

    /** The implementation of Heavier, which extends Base and cannot be truncated. */
    public static final class HeavierImpl extends Heavier {}

    /** The implementation of Square, which computes its area. */
    public static final class SquareImpl extends Square {
        @Override
        public double area() {
            return side * side;
        }
    }

    /**
     * The implementation of the custom value Stamp. JacORB writes it without chunks
     * (CDROutputStream.write_value_internal).
     */
    public static class StampImpl extends Stamp {
        @Override
        public void marshal(DataOutputStream out) {
            out.write_long(number);
            out.write_string(text);
            out.write_short((short) data.length);
            out.write_octet_array(data, 0, data.length);
            out.write_Value(origin);
        }

        @Override
        public void unmarshal(DataInputStream in) {
            number = in.read_long();
            text = in.read_string();
            data = new byte[in.read_short()];
            in.read_octet_array(new org.omg.CORBA.OctetSeqHolder(data), 0, data.length);
            origin = (Node) in.read_Value();
        }
    }

    /**
     * A Stamp that JacORB writes in chunks. Without chunks, only the value's own code knows where the
     * value ends (CORBA 3.0.3, 15.3.4). JacORB writes chunks for streamable values with more than one id.
     */
    public static final class ChunkedStamp extends StampImpl implements StreamableValue {
        /** Creates a copy. */
        public ChunkedStamp(Stamp from) {
            number = from.number;
            text = from.text;
            data = from.data;
            origin = from.origin;
        }

        @Override
        public String[] _truncatable_ids() {
            return new String[] {STAMP, STAMP};
        }

        @Override
        public void _write(OutputStream out) {
            out.write_long(number);
            out.write_string(text);
            out.write_short((short) data.length);
            out.write_octet_array(data, 0, data.length);
            ((org.omg.CORBA_2_3.portable.OutputStream) out).write_value(origin);
        }

        @Override
        public void _read(InputStream in) {
            throw new org.omg.CORBA.NO_IMPLEMENT("stamps are read by StampImpl");
        }
    }

    /** The implementation of Note, whose description is its text. */
    public static final class NoteImpl extends Note {
        @Override
        public String describe() {
            return text;
        }
    }

    private static void register(ORB orb, String name, Supplier<StreamableValue> made) {
        ValueFactory factory = stream -> stream.read_value(made.get());
        ((org.omg.CORBA_2_3.ORB) orb).register_value_factory("IDL:corelane/InteropValues/" + name + ":1.0", factory);
    }

    /** Describes the graph that is reachable from a node. */
    private static String form(Node start) {
        List<Node> met = new ArrayList<>();
        Map<Node, Integer> numbers = new IdentityHashMap<>();
        number(start, met, numbers);
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < met.size(); at++) {
            Node node = met.get(at);
            String left = number(node.left, met, numbers);
            String right = number(node.right, met, numbers);
            text.append(node.id).append(':').append(node.label).append('(').append(left).append(',').append(right).append(')');
        }
        return text.toString();
    }

    private static String number(Node node, List<Node> met, Map<Node, Integer> numbers) {
        if (node == null) {
            return "-";
        }
        Integer known = numbers.get(node);
        if (known == null) {
            known = met.size();
            numbers.put(node, known);
            met.add(node);
        }
        return known.toString();
    }

    private static String form(Base base) {
        if (base == null) {
            return "-";
        }
        String text = base.tag + " " + base.number + " " + base.name;
        if (base instanceof Extended) {
            Extended extended = (Extended) base;
            text += " extended " + extended.extra + " " + extended.last + " " + form(extended.graph);
        } else if (base instanceof Heavier) {
            text += " heavier " + ((Heavier) base).weight;
        }
        return text;
    }

    private static void walk(Node node, StringBuilder text, Map<Node, Integer> met) {
        if (node == null || met.put(node, 0) != null) {
            return;
        }
        text.append(node.id).append(' ');
        walk(node.left, text, met);
        walk(node.right, text, met);
    }

    private static String walked(Node start) {
        StringBuilder text = new StringBuilder();
        walk(start, text, new IdentityHashMap<>());
        return text.toString();
    }

    // ---- servants ----

    private static final class ThingServant extends ThingPOA {
        @Override
        public String describe() {
            return "thing";
        }
    }

    private static final class SuiteServant extends ValueSuitePOA {
        private final Thing thing;
        private final CountDownLatch stop;

        SuiteServant(Thing thing, CountDownLatch stop) {
            this.thing = thing;
            this.stop = stop;
        }

        @Override
        public BigDecimal echo_money(BigDecimal a, MoneyHolder b, MoneyHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public BigDecimal echo_widest(BigDecimal a, WidestHolder b, WidestHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Node echo_node(Node a, NodeHolder b, NodeHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Node[] echo_nodes(Node[] a, NodeSeqHolder b, NodeSeqHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Base echo_base(Base a, BaseHolder b, BaseHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public String echo_title(String a, TitleHolder b, TitleHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public String[] echo_words(String[] a, WordsHolder b, WordsHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Described echo_described(Described a, DescribedHolder b, DescribedHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Choice echo_choice(Choice a, ChoiceHolder b, ChoiceHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public OnKey echo_on_key(OnKey a, OnKeyHolder b, OnKeyHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public OnCard echo_on_card(OnCard a, OnCardHolder b, OnCardHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Node[] echo_pair(Node[] a, PairHolder b, PairHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Folder echo_folder(Folder a, FolderHolder b, FolderHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Stamp echo_stamp(Stamp a, StampHolder b, StampHolder c) {
            c.value = b.value;
            b.value = a;
            return a;
        }

        @Override
        public Any echo_any(Any a, AnyHolder b, AnyHolder c) {
            Any made = chunked(a);
            c.value = chunked(b.value);
            b.value = made;
            return made;
        }

        /** Returns a copy of an any, or of a nested any, in which each Stamp is a ChunkedStamp. */
        private Any chunked(Any any) {
            Any made = _orb().create_any();
            try {
                if (any.type().kind() == TCKind.tk_any) {
                    made.insert_any(chunked(any.extract_any()));
                    return made;
                }
                if (any.type().kind() == TCKind.tk_value && any.type().id().equals(STAMP)) {
                    StampHelper.insert(made, new ChunkedStamp(StampHelper.extract(any)));
                    return made;
                }
            } catch (BadKind exception) {
                throw new IllegalStateException(exception);
            }
            return any;
        }

        @Override
        public Any repack(Any any) {
            Any made = _orb().create_any();
            NodeHelper.insert(made, NodeHelper.extract(any));
            return made;
        }

        @Override
        public String walk(Node start) {
            return walked(start);
        }

        @Override
        public Thing server_thing() {
            return thing;
        }

        @Override
        public void shutdown() {
            stop.countDown();
        }
    }

    private static void serve(ORB orb, String file) throws Exception {
        CountDownLatch stop = new CountDownLatch(1);
        POA poa = Start.rootPoa(orb);
        Thing thing = ThingHelper.narrow(poa.servant_to_reference(new ThingServant()));
        String ior = orb.object_to_string(poa.servant_to_reference(new SuiteServant(thing, stop)));
        Files.writeString(Path.of(file + ".part"), ior + "\n");
        Files.move(Path.of(file + ".part"), Path.of(file), StandardCopyOption.ATOMIC_MOVE);
        System.out.println("ready");
        stop.await(240, TimeUnit.SECONDS);
    }

    // ---- client ----

    private static Node graph() {
        Node[] nodes = new Node[1 + RANDOM.nextInt(12)];
        for (int at = 0; at < nodes.length; at++) {
            nodes[at] = new NodeImpl();
            nodes[at].id = RANDOM.nextInt();
            nodes[at].label = "node " + at;
        }
        for (Node node : nodes) {
            node.left = RANDOM.nextInt(4) > 0 ? nodes[RANDOM.nextInt(nodes.length)] : null;
            node.right = RANDOM.nextInt(4) > 0 ? nodes[RANDOM.nextInt(nodes.length)] : null;
        }
        return nodes[0];
    }

    private static Base base(int kind) {
        Base made;
        if (kind == 2) {
            Heavier heavier = new HeavierImpl();
            heavier.weight = RANDOM.nextInt();
            made = heavier;
        } else if (kind == 1) {
            Extended more = new ExtendedImpl();
            more.extra = RANDOM.nextInt(1000) / 8.0;
            more.graph = RANDOM.nextInt(5) > 0 ? graph() : null;
            more.last = (short) RANDOM.nextInt();
            made = more;
        } else {
            made = new BaseImpl();
        }
        made.tag = (byte) RANDOM.nextInt();
        made.number = RANDOM.nextInt();
        made.name = "n\u00e4\u20ac";
        return made;
    }

    private static Folder folder(Node node) {
        Choice choice = new Choice();
        choice.leaf(node);
        return new Folder(node, "folder", node, base(1), choice, new Node[] {node, null});
    }

    private static void check(String name, Callable<String> run) {
        String trouble = "";
        for (int round = 0; round < 20 && trouble.isEmpty(); round++) {
            try {
                trouble = run.call();
            } catch (Exception exception) {
                trouble = exception.toString();
            }
        }
        System.out.println(trouble.isEmpty() ? "ok " + name : "FAIL " + name + " " + trouble.replace('\n', ' '));
        if (trouble.isEmpty()) {
            passed++;
        } else {
            failed++;
        }
    }

    private static String differs(Object expected, Object found) {
        return expected.equals(found) ? "" : "expected " + expected + ", found " + found;
    }

    private static Stamp stamp() {
        Stamp stamp = new StampImpl();
        stamp.number = RANDOM.nextInt();
        stamp.text = "stamp";
        stamp.data = new byte[RANDOM.nextInt(300)];
        stamp.origin = graph();
        return stamp;
    }

    private static String differs(Stamp expected, Stamp got) {
        return differs(expected.number + expected.text, got.number + got.text)
                + differs(Arrays.toString(expected.data), Arrays.toString(got.data))
                + differs(form(expected.origin), form(got.origin));
    }

    private static String form(Choice choice) {
        switch (choice.discriminator()) {
            case 0: return "leaf " + form(choice.leaf());
            case 7: return "heading " + choice.heading();
            default: return "number " + choice.discriminator() + " " + choice.number();
        }
    }

    private static Choice choice(boolean boxes) {
        Choice made = new Choice();
        switch (RANDOM.nextInt(boxes ? 3 : 2)) {
            case 0: made.leaf(graph()); break;
            case 1: made.number(RANDOM.nextInt()); break;
            default: made.heading("heading");
        }
        return made;
    }

    private static String form(OnKey on) {
        switch (on.discriminator()) {
            case -7: return "text " + on.text();
            case 7: return "leaf " + form(on.leaf());
            default: return "none " + on.discriminator();
        }
    }

    private static OnKey onKey() {
        OnKey made = new OnKey();
        switch (RANDOM.nextInt(3)) {
            case 0: made.text("text"); break;
            case 1: made.leaf(graph()); break;
            // JacORB's own reader replaces any other discriminator of the default arm by the first
            // unused value.
            default: made.__default(0);
        }
        return made;
    }

    private static String form(OnCard on) {
        switch (on.discriminator().value()) {
            case InteropValues.Suit._CLUBS: return "amount " + on.amount();
            case InteropValues.Suit._SPADES: return "content " + on.content().extract_long();
            default: return "none";
        }
    }

    private static OnCard onCard(ORB orb) {
        OnCard made = new OnCard();
        if (RANDOM.nextInt(2) == 0) {
            made.amount(-12.5);
        } else {
            Any content = orb.create_any();
            content.insert_long(RANDOM.nextInt());
            made.content(content);
        }
        return made;
    }

    /** Checks a value in any, and in any in any. */
    private static String inAny(ORB orb, ValueSuite suite, Consumer<Any> put, Function<Any, String> show) {
        Any a = orb.create_any();
        put.accept(a);
        Any within = orb.create_any();
        within.insert_any(a);
        Any nested = orb.create_any();
        nested.insert_any(within);
        AnyHolder inout = new AnyHolder(nested);
        AnyHolder out = new AnyHolder();
        Any result = suite.echo_any(a, inout, out);
        String expected = show.apply(a);
        return differs(expected, show.apply(result)) + differs(expected, show.apply(inout.value))
                + differs(expected, show.apply(out.value.extract_any().extract_any()));
    }

    private static void checkAny(ORB orb, ValueSuite suite, String name, Consumer<Any> put, Function<Any, String> show) {
        check("echo_any(" + name + ")", () -> inAny(orb, suite, put, show));
    }

    /** Checks each type in any: compares the inserted value with the text of the received value. */
    private static void anys(ORB orb, ValueSuite suite) {
        checkAny(orb, suite, "Money", a -> MoneyHelper.insert(a, new BigDecimal("-12345.6789")),
                any -> MoneyHelper.extract(any).toString());
        checkAny(orb, suite, "Widest", a -> WidestHelper.insert(a, new BigDecimal("-123456789012345678901.0123456789")),
                any -> WidestHelper.extract(any).toString());
        checkAny(orb, suite, "Title", a -> TitleHelper.insert(a, "a title"), TitleHelper::extract);
        checkAny(orb, suite, "Words", a -> WordsHelper.insert(a, new String[] {"one", "two"}),
                any -> Arrays.toString(WordsHelper.extract(any)));
        checkAny(orb, suite, "Described", a -> DescribedHelper.insert(a, suite.server_thing()),
                any -> DescribedHelper.extract(any).describe());
        checkAny(orb, suite, "Note", a -> {
            Note note = new NoteImpl();
            note.text = "a note";
            NoteHelper.insert(a, note);
        }, any -> DescribedHelper.extract(any).describe());
        checkAny(orb, suite, "Thing", a -> ThingHelper.insert(a, suite.server_thing()), any -> ThingHelper.extract(any).describe());
        checkAny(orb, suite, "Shape", a -> {
            Square square = new SquareImpl();
            square.side = 1.5;
            SquareHelper.insert(a, square);
        }, any -> Double.toString(SquareHelper.extract(any).area()));
        checkAny(orb, suite, "Base", a -> BaseHelper.insert(a, base(RANDOM.nextInt(3))), any -> form(BaseHelper.extract(any)));
        checkAny(orb, suite, "NodeSeq", a -> {
            Node shared = graph();
            NodeSeqHelper.insert(a, new Node[] {shared, null, shared});
        }, any -> {
            Node[] list = NodeSeqHelper.extract(any);
            return list.length == 3 && list[0] == list[2] && list[1] == null ? form(list[0]) : "not shared";
        });
        checkAny(orb, suite, "Pair", a -> PairHelper.insert(a, new Node[] {graph(), null}), any -> {
            Node[] pair = PairHelper.extract(any);
            return pair[1] == null ? form(pair[0]) : "not null";
        });
        checkAny(orb, suite, "Choice", a -> ChoiceHelper.insert(a, choice(false)), any -> form(ChoiceHelper.extract(any)));
        checkAny(orb, suite, "OnKey", a -> OnKeyHelper.insert(a, onKey()), any -> form(OnKeyHelper.extract(any)));
        checkAny(orb, suite, "OnCard", a -> OnCardHelper.insert(a, onCard(orb)), any -> form(OnCardHelper.extract(any)));
        checkAny(orb, suite, "Folder", a -> FolderHelper.insert(a, folder(graph())), any -> {
            Folder folder = FolderHelper.extract(any);
            boolean shared = folder.first == folder.second && folder.two[0] == folder.first;
            return shared ? form(folder.first) + form(folder.item) : "not shared";
        });
        checkAny(orb, suite, "Stamp", a -> StampHelper.insert(a, new ChunkedStamp(stamp())), any -> {
            Stamp stamp = StampHelper.extract(any);
            return stamp.number + stamp.text + Arrays.toString(stamp.data) + form(stamp.origin);
        });
    }

    private static int call(ORB orb, String reference) throws Exception {
        Start.rootPoa(orb);
        ValueSuite suite = ValueSuiteHelper.narrow(orb.string_to_object(Start.reference(reference)));
        check("echo_money", () -> {
            BigDecimal a = BigDecimal.valueOf(RANDOM.nextInt(), 5).setScale(4, java.math.RoundingMode.DOWN);
            MoneyHolder inout = new MoneyHolder(new BigDecimal("-0.0001"));
            MoneyHolder out = new MoneyHolder();
            BigDecimal result = suite.echo_money(a, inout, out);
            return differs(a, result) + differs(a, inout.value) + differs(new BigDecimal("-0.0001"), out.value);
        });
        check("echo_widest", () -> {
            BigDecimal a = new BigDecimal("-123456789012345678901.0123456789");
            WidestHolder inout = new WidestHolder(new BigDecimal("999999999999999999999.9999999999"));
            WidestHolder out = new WidestHolder();
            return differs(a, suite.echo_widest(a, inout, out)) + differs(a, inout.value);
        });
        check("echo_node", () -> {
            Node a = graph();
            Node b = RANDOM.nextInt(5) > 0 ? graph() : null;
            NodeHolder inout = new NodeHolder(b);
            NodeHolder out = new NodeHolder();
            Node result = suite.echo_node(a, inout, out);
            if (result != inout.value) {
                return "result and inout are not the same value";
            }
            return differs(form(a), form(result)) + differs(form(b), form(out.value));
        });
        check("echo_nodes", () -> {
            Node shared = graph();
            NodeSeqHolder inout = new NodeSeqHolder(new Node[0]);
            NodeSeqHolder out = new NodeSeqHolder();
            Node[] result = suite.echo_nodes(new Node[] {shared, shared, null, shared}, inout, out);
            if (result.length != 4 || out.value.length != 0 || result[0] != result[3] || result[2] != null) {
                return "another sequence";
            }
            return differs(form(shared), form(result[1]));
        });
        check("echo_base", () -> {
            Base a = base(RANDOM.nextInt(3));
            Base b = base(RANDOM.nextInt(3));
            BaseHolder inout = new BaseHolder(b);
            BaseHolder out = new BaseHolder();
            Base result = suite.echo_base(a, inout, out);
            return differs(form(a), form(result)) + differs(form(b), form(out.value));
        });
        check("echo_title", () -> {
            TitleHolder inout = new TitleHolder(null);
            TitleHolder out = new TitleHolder();
            return differs("a title", suite.echo_title("a title", inout, out)) + (out.value == null ? "" : "not null");
        });
        check("echo_words", () -> {
            WordsHolder inout = new WordsHolder(new String[0]);
            WordsHolder out = new WordsHolder();
            String[] words = {"one", "two"};
            String[] result = suite.echo_words(words, inout, out);
            return differs(Arrays.asList(words), Arrays.asList(result)) + differs(0, out.value.length);
        });
        check("echo_described", () -> {
            Note note = new NoteImpl();
            note.text = "a note";
            DescribedHolder inout = new DescribedHolder(note);
            DescribedHolder out = new DescribedHolder();
            Described result = suite.echo_described(suite.server_thing(), inout, out);
            return differs("thing", result.describe()) + differs("a note", out.value.describe());
        });
        check("echo_folder", () -> {
            Node node = graph();
            Folder folder = folder(node);
            FolderHolder inout = new FolderHolder(folder);
            FolderHolder out = new FolderHolder();
            Folder result = suite.echo_folder(folder, inout, out);
            if (result.first != result.second || result.two[0] != result.first || result.chosen.leaf() != result.first) {
                return "not shared";
            }
            return differs(form(node), form(out.value.second)) + differs(form(folder.item), form(result.item));
        });
        check("echo_stamp", () -> {
            Stamp stamp = stamp();
            StampHolder inout = new StampHolder(null);
            StampHolder out = new StampHolder();
            Stamp result = suite.echo_stamp(stamp, inout, out);
            return differs(stamp, result) + (inout.value == result ? "" : "not shared")
                    + (out.value == null ? "" : "not null");
        });
        check("echo_choice", () -> {
            Choice a = choice(true);
            Choice b = choice(true);
            ChoiceHolder inout = new ChoiceHolder(b);
            ChoiceHolder out = new ChoiceHolder();
            Choice result = suite.echo_choice(a, inout, out);
            return differs(form(a), form(result)) + differs(form(a), form(inout.value)) + differs(form(b), form(out.value));
        });
        check("echo_on_key", () -> {
            OnKey a = onKey();
            OnKey b = onKey();
            OnKeyHolder inout = new OnKeyHolder(b);
            OnKeyHolder out = new OnKeyHolder();
            OnKey result = suite.echo_on_key(a, inout, out);
            return differs(form(a), form(result)) + differs(form(a), form(inout.value)) + differs(form(b), form(out.value));
        });
        check("echo_on_card", () -> {
            OnCard a = onCard(orb);
            OnCard b = onCard(orb);
            OnCardHolder inout = new OnCardHolder(b);
            OnCardHolder out = new OnCardHolder();
            OnCard result = suite.echo_on_card(a, inout, out);
            return differs(form(a), form(result)) + differs(form(a), form(inout.value)) + differs(form(b), form(out.value));
        });
        check("echo_pair", () -> {
            Node node = graph();
            PairHolder inout = new PairHolder(new Node[2]);
            PairHolder out = new PairHolder();
            Node[] result = suite.echo_pair(new Node[] {node, node}, inout, out);
            if (result[0] != result[1] || result[0] != inout.value[0] || out.value[0] != null) {
                return "not shared";
            }
            return differs(form(node), form(result[0]));
        });
        anys(orb, suite);
        check("echo_any", () -> {
            Node node = graph();
            Base base = base(RANDOM.nextInt(3));
            Any a = orb.create_any();
            BaseHelper.insert(a, base);
            Any inner = orb.create_any();
            NodeHelper.insert(inner, node);
            Any b = orb.create_any();
            b.insert_any(inner);
            AnyHolder inout = new AnyHolder(b);
            AnyHolder out = new AnyHolder();
            Base result = BaseHelper.extract(suite.echo_any(a, inout, out));
            return differs(form(base), form(result)) + differs(form(node), form(NodeHelper.extract(out.value.extract_any())));
        });
        check("repack", () -> {
            Node node = graph();
            Any any = orb.create_any();
            NodeHelper.insert(any, node);
            return differs(form(node), form(NodeHelper.extract(suite.repack(any))));
        });
        check("walk", () -> {
            Node node = graph();
            return differs(walked(node), suite.walk(node));
        });
        System.out.println(passed + " passed, " + failed + " failed");
        return failed == 0 ? 0 : 1;
    }

    /** Runs the program. */
    public static void main(String[] arguments) throws Exception {
        System.setProperty("javax.rmi.CORBA.UtilClass", "peer.RmiIds");
        Start start = new Start(arguments);
        ORB orb = Start.orb();
        register(orb, "Node", NodeImpl::new);
        register(orb, "Base", BaseImpl::new);
        register(orb, "Extended", ExtendedImpl::new);
        register(orb, "Heavier", HeavierImpl::new);
        register(orb, "Note", NoteImpl::new);
        register(orb, "Square", SquareImpl::new);
        ((org.omg.CORBA_2_3.ORB) orb).register_value_factory(STAMP, stream -> stream.read_value(new StampImpl()));
        int status = 0;
        switch (start.next()) {
            case "--ior": serve(orb, start.next()); break;
            case "--call": status = call(orb, start.next()); break;
            default:
                System.err.println("usage: ValuePeer --ior FILE | --call REFERENCE");
                status = 2;
        }
        orb.shutdown(true);
        System.exit(status);
    }
}
