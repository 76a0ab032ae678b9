package peer;

import Interop.SuiteOperations;
import Interop.SuitePOATie;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.omg.CORBA.ORB;
import org.omg.PortableServer.POA;

/**
 * Server --ior FILE [--life SECONDS] [--until-eof]
 *
 * <p>Serves an object of Interop::Suite under the plain key "Interop" and writes its reference to FILE.
 * The server ends at the shutdown operation, after SECONDS (300), or, with --until-eof, at the end of
 * standard input.
 */
public final class Server {
    private Server() {}

    public static void main(String[] arguments) throws Exception {
        Start start = new Start(arguments);
        String file = null;
        int life = 300;
        boolean untilEof = false;
        while (start.more()) {
            String word = start.next();
            switch (word) {
                case "--ior": file = start.next(); break;
                case "--life": life = start.number(); break;
                case "--until-eof": untilEof = true; break;
                default: Start.unknown(word);
            }
        }
        if (file == null) {
            System.err.println("--ior FILE is missing");
            System.exit(2);
        }

        CountDownLatch stop = new CountDownLatch(1);
        ORB orb = Start.orb();
        POA poa = Start.rootPoa(orb);
        SuiteOperations suite = suite(new SuiteRest(poa, stop::countDown));
        String ior = orb.object_to_string(poa.servant_to_reference(new SuitePOATie(suite)));
        Product.bindKey(orb, "Interop", ior);
        Files.writeString(Path.of(file + ".part"), ior + "\n");
        Files.move(Path.of(file + ".part"), Path.of(file), StandardCopyOption.ATOMIC_MOVE);
        System.out.println("ready");

        if (untilEof) {
            Thread watcher = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {
                        // The input itself is ignored; only its end matters.
                    }
                } catch (java.io.IOException ended) {
                    // An error of reading ends the server too.
                }
                stop.countDown();
            });
            watcher.setDaemon(true);
            watcher.start();
        }
        stop.await(life, TimeUnit.SECONDS);
        orb.shutdown(true);
        System.exit(0);
    }

    /** Returns a servant that runs all echo operations by the rule of interop.idl, and the others by SuiteRest. */
    private static SuiteOperations suite(SuiteRest rest) {
        Class<?>[] face = {SuiteOperations.class};
        return (SuiteOperations) Proxy.newProxyInstance(Server.class.getClassLoader(), face, (proxy, method, arguments) -> {
            if (method.getName().startsWith("echo_")) {
                return echo(arguments);
            }
            Method real = SuiteRest.class.getMethod(method.getName(), method.getParameterTypes());
            try {
                return real.invoke(rest, arguments);
            } catch (InvocationTargetException raised) {
                throw raised.getCause();
            }
        });
    }

    /** Runs an echo operation: the result is a, b becomes a, and c becomes the old value of b. */
    private static Object echo(Object[] arguments) throws ReflectiveOperationException {
        Field inout = arguments[1].getClass().getField("value");
        Field out = arguments[2].getClass().getField("value");
        out.set(arguments[2], inout.get(arguments[1]));
        inout.set(arguments[1], arguments[0]);
        return arguments[0];
    }
}
