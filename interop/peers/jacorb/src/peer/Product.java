package peer;

import java.util.Properties;
import java.util.function.Consumer;

import org.omg.CORBA.Any;
import org.omg.CORBA.ORB;
import org.omg.CORBA.TypeCode;
import org.omg.CORBA.portable.OutputStream;

/** The code that is specific to JacORB. */
final class Product {
    static final String NAME = "JacORB";

    private Product() {}

    /** Returns settings of JacORB. Properties of the virtual machine (-D) override them. */
    static Properties settings() {
        Properties wanted = new Properties();
        wanted.put("org.omg.CORBA.ORBClass", "org.jacorb.orb.ORB");
        wanted.put("org.omg.CORBA.ORBSingletonClass", "org.jacorb.orb.ORBSingleton");
        wanted.put("OAIAddr", "127.0.0.1");
        wanted.put("jacorb.poa.queue_wait", "on");
        // Each level of a nested call takes a thread of the pool, for each calling thread.
        wanted.put("jacorb.poa.thread_pool_max", "64");
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("jacorb.") || name.startsWith("OA")) {
                wanted.put(name, System.getProperty(name));
            }
        }
        return wanted;
    }

    /** Makes the object reachable by a plain key. */
    static void bindKey(ORB orb, String key, String reference) {
        ((org.jacorb.orb.ORB) orb).addObjectKey(key, reference);
    }

    /** Inserts a value into an any. The function `write` writes the value. */
    static void insert(Any any, TypeCode type, Consumer<OutputStream> write) {
        any.type(type);
        write.accept(any.create_output_stream());
    }

    /** Returns the octets written so far. */
    static byte[] written(OutputStream stream) {
        return ((org.jacorb.orb.CDROutputStream) stream).getBufferCopy();
    }
}
