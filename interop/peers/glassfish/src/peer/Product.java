package peer;

import java.util.Properties;
import java.util.function.Consumer;

import org.omg.CORBA.Any;
import org.omg.CORBA.ORB;
import org.omg.CORBA.ORBPackage.InvalidName;
import org.omg.CORBA.TypeCode;
import org.omg.CORBA.portable.OutputStream;

/** The code that is specific to GlassFish ORB. */
final class Product {
    static final String NAME = "GlassFish";

    private Product() {}

    /** Returns settings of GlassFish ORB. Properties of the virtual machine (-D) override them. */
    static Properties settings() {
        Properties wanted = new Properties();
        wanted.put("org.omg.CORBA.ORBClass", "com.sun.corba.ee.impl.orb.ORBImpl");
        wanted.put("org.omg.CORBA.ORBSingletonClass", "com.sun.corba.ee.impl.orb.ORBSingleton");
        wanted.put("com.sun.corba.ee.ORBServerHost", "127.0.0.1");
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("com.sun.corba.ee.")) {
                wanted.put(name, System.getProperty(name));
            }
        }
        return wanted;
    }

    /** Makes the object reachable by a plain key. */
    static void bindKey(ORB orb, String key, String reference) throws InvalidName {
        ((com.sun.corba.ee.spi.orb.ORB) orb).register_initial_reference(key, orb.string_to_object(reference));
    }

    /** Inserts a value into an any. The function `write` writes the value, and the any then reads it. */
    static void insert(Any any, TypeCode type, Consumer<OutputStream> write) {
        OutputStream out = any.create_output_stream();
        write.accept(out);
        any.read_value(out.create_input_stream(), type);
    }

    /** Returns the octets written so far. */
    static byte[] written(OutputStream stream) {
        return ((com.sun.corba.ee.impl.encoding.CDROutputObject) stream).toByteArray();
    }
}
