package peer;

import java.util.Properties;
import java.util.function.Consumer;

import org.omg.CORBA.Any;
import org.omg.CORBA.ORB;
import org.omg.CORBA.TypeCode;
import org.omg.CORBA.portable.OutputStream;

/** The parts that are specific to JacORB. */
final class Product {
    static final String NAME = "JacORB";

    private Product() {}

    /** JacORB's own settings are -D properties of the virtual machine and override these. */
    static Properties settings() {
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
        return wanted;
    }

    /** Also serves the object under a plain key. */
    static void bindKey(ORB orb, String key, String reference) {
        ((org.jacorb.orb.ORB) orb).addObjectKey(key, reference);
    }

    /** Inserts the output of the writer into an any. */
    static void insert(Any any, TypeCode type, Consumer<OutputStream> write) {
        any.type(type);
        write.accept(any.create_output_stream());
    }

    /** Returns the octets written so far. */
    static byte[] written(OutputStream stream) {
        return ((org.jacorb.orb.CDROutputStream) stream).getBufferCopy();
    }
}
