package peer;

import Interop.*;

import org.omg.CORBA.Any;
import org.omg.CORBA.CharHolder;
import org.omg.CORBA.LongHolder;
import org.omg.CORBA.ORB;
import org.omg.CORBA.StringHolder;
import org.omg.PortableServer.POA;

/** The suite's operations other than the echo operations. Server looks them up by name. */
public final class SuiteRest {
    private final POA poa;
    private final Runnable stop;
    private final BouncerServant bouncer = new BouncerServant();
    private final BottomServant bottom = new BottomServant();
    private final BenchServant bench = new BenchServant();

    private int noted;
    private long sum;
    private int inside;
    private int most;
    private int level;
    private String title = "";
    private int[] marks = {};
    private Colour paint = Colour.RED;

    SuiteRest(POA poa, Runnable stop) {
        this.poa = poa;
        this.stop = stop;
    }

    public void wide_constants(CharHolder letter, StringHolder text) {
        letter.value = A_WCHAR.value;
        text.value = A_WSTRING.value;
    }

    public Any pack(Interop.Record value) {
        Any any = ORB.init().create_any();
        Product.insert(any, RecordHelper.type(), out -> RecordHelper.write(out, value));
        return any;
    }

    public Interop.Record unpack(Any value) throws Plain {
        if (!value.type().equivalent(RecordHelper.type())) {
            throw new Plain();
        }
        return RecordHelper.extract(value);
    }

    /** The generated code ignores context clauses, so the server receives no properties. */
    public String[] properties(String text) {
        return new String[] {text};
    }

    public int fail(Failure kind, int code, String text) throws Plain, Reason, Details {
        return Told.fail(kind, code, text);
    }

    public void fail_system(String name, int minor, short completed) {
        Told.system(name, minor, completed);
    }

    public synchronized void note(int value, String text) {
        noted += 1;
        sum += value;
        notifyAll();
    }

    public synchronized int take_notes(LongHolder total) {
        int count = noted;
        total.value = sum;
        noted = 0;
        sum = 0;
        return count;
    }

    public synchronized int await_notes(int count, int milliseconds) throws InterruptedException {
        long end = System.nanoTime() + milliseconds * 1_000_000L;
        while (noted < count && System.nanoTime() < end) {
            wait(Math.max(1, (end - System.nanoTime()) / 1_000_000));
        }
        return noted;
    }

    public String implementation() {
        return Product.NAME;
    }

    public Point origin() {
        return new Point(0, -1);
    }

    public synchronized int level() {
        return level;
    }

    public synchronized void level(int value) {
        level = value;
    }

    public synchronized String title() {
        return title;
    }

    public synchronized void title(String value) {
        title = value;
    }

    public synchronized int[] marks() {
        return marks;
    }

    public synchronized void marks(int[] value) {
        marks = value;
    }

    public synchronized Colour paint() {
        return paint;
    }

    public synchronized void paint(Colour value) {
        paint = value;
    }

    public Bouncer server_bouncer() throws Exception {
        return BouncerHelper.narrow(poa.servant_to_reference(bouncer));
    }

    public Base server_bottom() throws Exception {
        return BaseHelper.narrow(poa.servant_to_reference(bottom));
    }

    public Bench server_bench() throws Exception {
        return BenchHelper.narrow(poa.servant_to_reference(bench));
    }

    public Base gone() throws Exception {
        byte[] id = poa.activate_object(new BottomServant());
        Base reference = BaseHelper.narrow(poa.id_to_reference(id));
        poa.deactivate_object(id);
        return reference;
    }

    public int call_back(Bouncer target, Failure kind, int code, String text) throws Plain, Reason, Details {
        return target.fail_back(kind, code, text);
    }

    public void send_back(Bouncer target, int[] values) {
        for (int value : values) {
            target.receive(value);
        }
    }

    public void sleep(int milliseconds) throws InterruptedException {
        Thread.sleep(milliseconds);
    }

    public synchronized int meet(int callers, int milliseconds) throws InterruptedException {
        if (inside == 0) {
            most = 0;
        }
        inside += 1;
        most = Math.max(most, inside);
        notifyAll();
        long end = System.nanoTime() + milliseconds * 1_000_000L;
        while (most < callers && System.nanoTime() < end) {
            wait(Math.max(1, (end - System.nanoTime()) / 1_000_000));
        }
        inside -= 1;
        return most;
    }

    public Constants server_constants() {
        return new Constants(
            AN_OCTET.value, A_BOOLEAN.value, A_CHAR.value, A_SHORT.value, AN_USHORT.value, A_LONG.value, AN_ULONG.value,
            A_LONGLONG.value, AN_ULONGLONG.value, A_FLOAT.value, A_DOUBLE.value, A_STRING.value, DOUBLE_BOUND.value,
            SOME_BITS.value, A_COLOUR.value, Right.QUARTER);
    }

    public void shutdown() {
        stop.run();
    }
}
