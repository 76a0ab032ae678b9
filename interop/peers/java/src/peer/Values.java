package peer;

import Interop.*;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.Random;

import org.omg.CORBA.Any;
import org.omg.CORBA.ORB;
import org.omg.CORBA.TypeCode;
import org.omg.CORBA.portable.IDLEntity;
import org.omg.CORBA.portable.OutputStream;

/** Test values for every type of interop.idl, created and compared by reflection. */
final class Values {
    /** The characters of narrow strings: ascii, latin1 or unicode. */
    static String repertoire = "ascii";

    /**
     * Properties of a parameter or member that its Java type does not show: the lengths of arrays (exact
     * if positive, a negated maximum if negative), the longest string, and wide characters.
     */
    private record Shape(int longest, boolean wide, int... lengths) {
        int length(int depth) {
            return depth < lengths.length ? lengths[depth] : -6;
        }
    }

    private static final Shape PLAIN = new Shape(40, false);
    private static final Shape SHORT = new Shape(8, false);
    private static final Shape WIDE = new Shape(40, true);

    /** The shapes of parameters by operation, and of members by structure and member. */
    private static final Map<String, Shape> SHAPES = Map.ofEntries(
        Map.entry("echo_octet_seq", new Shape(0, false, -300)),
        Map.entry("echo_short_name", SHORT),
        Map.entry("echo_short_name_seq", SHORT),
        Map.entry("echo_bounded_long_seq", new Shape(0, false, -4)),
        Map.entry("echo_bounded_octet_seq", new Shape(0, false, -16)),
        Map.entry("echo_bounded_string_seq", new Shape(40, false, -3)),
        Map.entry("echo_bounded_nested_seq", new Shape(40, false, -2, -3)),
        Map.entry("echo_gapped_seq", new Shape(0, false, -400)),
        Map.entry("echo_matrix_seq", new Shape(0, false, -6, 2, 3)),
        Map.entry("echo_octet_array", new Shape(0, false, 16)),
        Map.entry("echo_long_array", new Shape(0, false, 5)),
        Map.entry("echo_matrix", new Shape(0, false, 2, 3)),
        Map.entry("echo_cube", new Shape(0, false, 2, 3, 4)),
        Map.entry("echo_string_array", new Shape(40, false, 3)),
        Map.entry("echo_point_array", new Shape(0, false, 3)),
        Map.entry("echo_person_array", new Shape(0, false, 2)),
        Map.entry("echo_long_seq_array", new Shape(0, false, 2, -6)),
        Map.entry("echo_long_array_rows", new Shape(0, false, 3, 5)),
        Map.entry("echo_large_array", new Shape(0, false, 8192)),
        Map.entry("echo_wchar", WIDE),
        Map.entry("echo_wstring", WIDE),
        Map.entry("echo_short_wide_name", new Shape(6, true)),
        Map.entry("echo_wchar_seq", WIDE),
        Map.entry("echo_wstring_seq", WIDE),
        Map.entry("echo_wchar_array", new Shape(0, true, 4)),
        Map.entry("Person.code", SHORT),
        Map.entry("Record.weights", new Shape(0, false, 2, 3)),
        Map.entry("Record.pair", new Shape(0, false, 2)),
        Map.entry("Record.cells", new Shape(0, false, 2, 2)),
        Map.entry("WideRecord.letter", WIDE),
        Map.entry("WideRecord.text", WIDE),
        Map.entry("WideRecord.code", new Shape(6, true)),
        Map.entry("WideRecord.words", WIDE));

    private final int round;
    private final Random random;

    /**
     * Creates the values of a round. In round 0, numbers are the minimum of their type and sequences are
     * empty. In round 1, numbers are the maximum and sequences have their maximum length.
     */
    Values(int round) {
        this.round = round;
        this.random = new Random(0x5eed + round);
    }

    /** Returns a value for a parameter of the operation. */
    Object make(String operation, Class<?> type) throws ReflectiveOperationException {
        return make(type, SHAPES.getOrDefault(operation, PLAIN), 0, 4);
    }

    private Object make(Class<?> type, Shape shape, int depth, int nesting) throws ReflectiveOperationException {
        if (type == byte.class) {
            return round == 0 ? (byte) 0 : round == 1 ? (byte) -1 : (byte) random.nextInt();
        } else if (type == boolean.class) {
            return round == 1 || (round > 1 && random.nextBoolean());
        } else if (type == char.class) {
            return shape.wide ? wideLetter() : letter();
        } else if (type == short.class) {
            return round == 0 ? Short.MIN_VALUE : round == 1 ? Short.MAX_VALUE : (short) random.nextInt();
        } else if (type == int.class) {
            return round == 0 ? Integer.MIN_VALUE : round == 1 ? Integer.MAX_VALUE : random.nextInt();
        } else if (type == long.class) {
            return round == 0 ? Long.MIN_VALUE : round == 1 ? Long.MAX_VALUE : random.nextLong();
        } else if (type == float.class) {
            return round == 0 ? -0.0f : round == 1 ? Float.MAX_VALUE : round == 2 ? Float.NEGATIVE_INFINITY : random.nextFloat();
        } else if (type == double.class) {
            return round == 0 ? Double.MIN_VALUE : round == 1 ? -Double.MAX_VALUE : random.nextDouble();
        } else if (type == String.class) {
            return text(shape);
        } else if (type.isArray()) {
            int wanted = shape.length(depth);
            int length = wanted > 0 ? wanted : count(-wanted);
            Object array = Array.newInstance(type.getComponentType(), nesting == 0 ? 0 : length);
            for (int i = 0; i < Array.getLength(array); i++) {
                Array.set(array, i, make(type.getComponentType(), shape, depth + 1, nesting));
            }
            return array;
        } else if (type == Any.class) {
            return any();
        } else if (type == TypeCode.class) {
            return any().type();
        } else if (hasMethod(type, "from_int", int.class)) {
            return type.getMethod("from_int", int.class).invoke(null, round == 0 ? 0 : round == 1 ? 2 : random.nextInt(3));
        } else if (hasMethod(type, "discriminator")) {
            return union(type);
        }
        Object struct = type.getConstructor().newInstance();
        for (Field field : type.getFields()) {
            Shape of = SHAPES.getOrDefault(type.getSimpleName() + "." + field.getName(), PLAIN);
            field.set(struct, make(field.getType(), of, 0, nesting - 1));
        }
        return struct;
    }

    private <T> T some(Class<T> type, Shape shape) throws ReflectiveOperationException {
        @SuppressWarnings("unchecked")
        T value = (T) make(type, shape, 0, 3);
        return value;
    }

    private Any any() throws ReflectiveOperationException {
        Any any = ORB.init().create_any();
        switch (random.nextInt(8)) {
            case 0: {
                Interop.Record value = some(Interop.Record.class, PLAIN);
                Product.insert(any, RecordHelper.type(), out -> RecordHelper.write(out, value));
                break;
            }
            case 1: {
                OnColour[] value = some(OnColour[].class, PLAIN);
                Product.insert(any, OnColourSeqHelper.type(), out -> OnColourSeqHelper.write(out, value));
                break;
            }
            case 2: {
                Person[] value = some(Person[].class, PLAIN);
                Product.insert(any, PersonSeqHelper.type(), out -> PersonSeqHelper.write(out, value));
                break;
            }
            case 3: {
                Tree value = some(Tree.class, PLAIN);
                Product.insert(any, TreeHelper.type(), out -> TreeHelper.write(out, value));
                break;
            }
            case 4: {
                int[] value = some(int[].class, new Shape(0, false, 5));
                Product.insert(any, LongArrayHelper.type(), out -> LongArrayHelper.write(out, value));
                break;
            }
            case 5: any.insert_string(text(PLAIN)); break;
            case 6: {
                Colour value = some(Colour.class, PLAIN);
                Product.insert(any, ColourHelper.type(), out -> ColourHelper.write(out, value));
                break;
            }
            default: any.insert_any(any());
        }
        return any;
    }

    /** Returns the octets of a value. */
    private static String octets(java.util.function.Consumer<OutputStream> write) {
        OutputStream stream = ORB.init().create_any().create_output_stream();
        write.accept(stream);
        return java.util.HexFormat.of().formatHex(Product.written(stream));
    }

    /** Returns a union whose discriminator JacORB's generated code does not lose. */
    private Object union(Class<?> type) throws ReflectiveOperationException {
        int which = random.nextInt(3);
        switch (type.getSimpleName()) {
            case "OnBoolean": {
                OnBoolean u = new OnBoolean();
                if (which == 0) u.yes(random.nextInt());
                else u.no(text(PLAIN));
                return u;
            }
            case "OnChar": {
                OnChar u = new OnChar();
                if (which == 0) u.alpha(random.nextInt());
                else if (which == 1) u.beta(random.nextBoolean() ? 'b' : 'c', text(PLAIN));
                else u.other((byte) random.nextInt());
                return u;
            }
            case "OnShort": {
                OnShort u = new OnShort();
                if (which == 0) u.lowest((byte) random.nextInt());
                else if (which == 1) u.zero(some(Point.class, PLAIN));
                else u.highest(random.nextDouble());
                return u;
            }
            case "OnUShort": {
                OnUShort u = new OnUShort();
                if (which == 0) u.none(random.nextBoolean());
                else if (which == 1) u.many(some(Point[].class, PLAIN));
                else u.some(some(Colour.class, PLAIN));
                return u;
            }
            case "OnLong": {
                OnLong u = new OnLong();
                if (which == 0) u.human(some(Person.class, PLAIN));
                else if (which == 1) u.numbers(some(int[].class, new Shape(0, false, 5)));
                else u.text(text(PLAIN));
                return u;
            }
            case "OnULong": {
                OnULong u = new OnULong();
                if (which == 0) u.small(random.nextLong());
                else u.words(some(String[].class, PLAIN));
                return u;
            }
            case "OnLongLong": {
                OnLongLong u = new OnLongLong();
                if (which == 0) u.low((short) random.nextInt());
                else if (which == 1) u.high(some(byte[].class, PLAIN));
                else u.__default(Long.MIN_VALUE);
                return u;
            }
            case "OnULongLong": {
                OnULongLong u = new OnULongLong();
                if (which == 0) u.first(letter());
                else if (which == 1) u.last(text(SHORT));
                else u.__default(-1L);
                return u;
            }
            case "OnColour": {
                OnColour u = new OnColour();
                if (which == 0) u.red_part(some(OnBoolean.class, PLAIN));
                else u.cold_part(random.nextBoolean() ? Colour.GREEN : Colour.BLUE, some(Mixed.class, PLAIN));
                return u;
            }
            default:
                throw new IllegalStateException("no values for union " + type);
        }
    }

    private int count(int most) {
        return round == 0 ? 0 : round == 1 ? most : random.nextInt(most + 1);
    }

    private char letter() {
        if (round == 1 && repertoire.equals("latin1")) {
            return '\u00ff';
        }
        return round == 0 ? '\0' : round == 1 ? '\u007f' : (char) random.nextInt(128);
    }

    private char wideLetter() {
        String some = "a\u00e9\u20ac\u65e5\u672c\ufffd\u007f\u0100";
        return round == 0 ? '\u0001' : some.charAt(random.nextInt(some.length()));
    }

    private String text(Shape shape) {
        String[] pieces = {"a", "Z", "7", " ", "~", "\u0001", "\t", "\""};
        if (shape == SHORT) {
            pieces = new String[] {"b", "y", "e"};
        } else if (repertoire.startsWith("latin1")) {
            pieces = new String[] {"a", "\u00e9", "\u00ff", "\u00a0", "\u00df", "Z"};
        } else if (repertoire.equals("unicode")) {
            pieces = new String[] {"a", "\u00e9", "\u20ac", "\u65e5\u672c", "\ud83d\ude80"};
        }
        StringBuilder all = new StringBuilder();
        for (int i = count(shape.longest); i > 0; i--) {
            if (shape.wide) {
                all.append(wideLetter());
            } else {
                all.append(pieces[random.nextInt(pieces.length)]);
            }
        }
        return all.toString();
    }

    private static boolean hasMethod(Class<?> type, String name, Class<?>... parameters) {
        try {
            type.getMethod(name, parameters);
            return true;
        } catch (NoSuchMethodException absent) {
            return false;
        }
    }

    /** Returns true if two values of an IDL type are equal, floating-point numbers bit for bit. */
    static boolean same(Object x, Object y) {
        return show(x).equals(show(y));
    }

    /** Returns a text of a value. Different values have different texts. */
    static String show(Object value) {
        StringBuilder text = new StringBuilder();
        show(value, text);
        return text.toString();
    }

    private static void show(Object value, StringBuilder text) {
        if (value == null) {
            text.append("null");
        } else if (value instanceof Character letter) {
            text.append('\'').append((int) letter).append('\'');
        } else if (value instanceof Double number) {
            text.append(Long.toHexString(Double.doubleToRawLongBits(number)));
        } else if (value instanceof Float number) {
            text.append(Integer.toHexString(Float.floatToRawIntBits(number)));
        } else if (value instanceof String string) {
            text.append('"');
            string.chars().forEach(unit -> text.append(unit < 127 && unit > 31 ? (char) unit + "" : String.format("\\%04x", unit)));
            text.append('"');
        } else if (value.getClass().isArray()) {
            text.append('[');
            for (int i = 0; i < Array.getLength(value); i++) {
                show(Array.get(value, i), text);
                text.append(' ');
            }
            text.append(']');
        } else if (value instanceof Any any) {
            text.append(octets(stream -> stream.write_any(any)));
        } else if (value instanceof TypeCode type) {
            text.append(octets(stream -> stream.write_TypeCode(type)));
        } else if (hasMethod(value.getClass(), "from_int", int.class)) {
            text.append(enumerator(value));
        } else if (value instanceof IDLEntity && !(value instanceof org.omg.CORBA.Object)) {
            text.append('{');
            for (Field field : value.getClass().getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    text.append(field.getName()).append('=');
                    show(member(field, value), text);
                    text.append(' ');
                }
            }
            text.append('}');
        } else {
            text.append(value);
        }
    }

    private static Object enumerator(Object value) {
        try {
            Method number = value.getClass().getMethod("value");
            return number.invoke(value);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static Object member(Field field, Object value) {
        try {
            field.setAccessible(true);
            return field.get(value);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }
}
