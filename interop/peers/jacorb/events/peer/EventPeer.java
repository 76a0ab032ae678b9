package peer;

import java.util.Properties;
import org.jacorb.events.EventChannelImpl;
import org.omg.CORBA.Any;
import org.omg.CORBA.BooleanHolder;
import org.omg.CORBA.OBJECT_NOT_EXIST;
import org.omg.CORBA.ORB;
import org.omg.CORBA.TCKind;
import org.omg.CORBA.TRANSIENT;
import org.omg.CosEventChannelAdmin.AlreadyConnected;
import org.omg.CosEventChannelAdmin.EventChannel;
import org.omg.CosEventChannelAdmin.EventChannelHelper;
import org.omg.CosEventChannelAdmin.ProxyPullConsumer;
import org.omg.CosEventChannelAdmin.ProxyPullSupplier;
import org.omg.CosEventChannelAdmin.ProxyPushConsumer;
import org.omg.CosEventChannelAdmin.ProxyPushSupplier;
import org.omg.CosEventComm.PullSupplier;
import org.omg.CosEventComm.PullSupplierHelper;
import org.omg.CosEventComm.PullSupplierPOA;
import org.omg.CosEventComm.PushConsumer;
import org.omg.CosEventComm.PushConsumerHelper;
import org.omg.CosEventComm.PushConsumerPOA;
import org.omg.CosEventComm.PushSupplier;
import org.omg.CosEventComm.PushSupplierHelper;
import org.omg.CosEventComm.PushSupplierPOA;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;
import org.omg.PortableServer.Servant;

/**
 * Clients of an event channel of CORBA's Event Service, and JacORB's own channel.
 *
 * <pre>
 * --push REFERENCE COUNT      pushes COUNT values of type long, 0 and up, then disconnects
 * --supply REFERENCE COUNT    connects as a pull supplier of COUNT values, and disconnects when the channel has them
 * --consume REFERENCE COUNT   connects as a push consumer, prints `ready`, prints each value, and disconnects after
 *                             COUNT values
 * --pull REFERENCE COUNT      connects as a pull consumer, prints `ready`, prints each value, and disconnects after
 *                             COUNT values
 * --serve                     serves JacORB's channel, prints its reference, and ends with the standard input
 * </pre>
 *
 * Prints `disconnected` when the channel calls a disconnect operation, and `done` at the end.
 */
public final class EventPeer {
    private final ORB orb;
    private final POA poa;

    private EventPeer(ORB orb) throws Exception {
        this.orb = orb;
        poa = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
        poa.the_POAManager().activate();
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void print(Any data) {
        switch (data.type().kind().value()) {
            case TCKind._tk_long:
                say("long " + data.extract_long());
                break;
            case TCKind._tk_string:
                say("string " + data.extract_string());
                break;
            default:
                say("kind " + data.type().kind().value());
        }
    }

    /** A number that falls to 0, for which a thread can wait. */
    private static final class Missing {
        private int missing;

        Missing(int missing) {
            this.missing = missing;
        }

        synchronized void one() {
            missing--;
            notifyAll();
        }

        synchronized void none() {
            missing = 0;
            notifyAll();
        }

        synchronized boolean isNone() {
            return missing <= 0;
        }

        synchronized void await() throws InterruptedException {
            while (missing > 0) {
                wait();
            }
        }
    }

    private final class Consumer extends PushConsumerPOA {
        private final Missing missing;

        Consumer(Missing missing) {
            this.missing = missing;
        }

        @Override
        public synchronized void push(Any data) {
            print(data);
            missing.one();
        }

        @Override
        public void disconnect_push_consumer() {
            say("disconnected");
            missing.none();
        }
    }

    private static final class Supplier extends PushSupplierPOA {
        @Override
        public void disconnect_push_supplier() {
            say("disconnected");
        }
    }

    private final class PulledSupplier extends PullSupplierPOA {
        private final Missing missing;
        private int next;
        private final int count;

        PulledSupplier(int count, Missing missing) {
            this.count = count;
            this.missing = missing;
        }

        @Override
        public Any pull() {
            throw new TRANSIENT("only try_pull is used");
        }

        @Override
        public synchronized Any try_pull(BooleanHolder hasEvent) {
            Any data = orb.create_any();
            hasEvent.value = next < count;
            data.insert_long(next);
            if (hasEvent.value) {
                next++;
            } else {
                // The channel asks again after it has taken each value.
                missing.none();
            }
            return data;
        }

        @Override
        public void disconnect_pull_supplier() {
            say("disconnected");
            missing.none();
        }
    }

    private org.omg.CORBA.Object activate(Servant servant) throws Exception {
        return poa.servant_to_reference(servant);
    }

    private void push(EventChannel channel, int count) throws Exception {
        PushSupplier supplier = PushSupplierHelper.narrow(activate(new Supplier()));
        ProxyPushConsumer proxy = channel.for_suppliers().obtain_push_consumer();
        proxy.connect_push_supplier(supplier);
        for (int number = 0; number < count; number++) {
            Any data = orb.create_any();
            data.insert_long(number);
            proxy.push(data);
        }
        proxy.disconnect_push_consumer();
    }

    private void supply(EventChannel channel, int count) throws Exception {
        Missing missing = new Missing(1);
        PullSupplier supplier = PullSupplierHelper.narrow(activate(new PulledSupplier(count, missing)));
        ProxyPullConsumer proxy = channel.for_suppliers().obtain_pull_consumer();
        proxy.connect_pull_supplier(supplier);
        missing.await();
        proxy.disconnect_pull_consumer();
    }

    private void consume(EventChannel channel, int count) throws Exception {
        Missing missing = new Missing(count);
        PushConsumer consumer = PushConsumerHelper.narrow(activate(new Consumer(missing)));
        ProxyPushSupplier proxy = channel.for_consumers().obtain_push_supplier();
        proxy.connect_push_consumer(consumer);
        try {
            proxy.connect_push_consumer(consumer);
            say("connected twice");
        } catch (AlreadyConnected expected) {
            // The proxy has its consumer.
        }
        say("ready");
        missing.await();
        try {
            proxy.disconnect_push_supplier();
        } catch (OBJECT_NOT_EXIST | TRANSIENT expected) {
            // The channel was destroyed, or is being destroyed.
        }
    }

    private void pull(EventChannel channel, int count) throws Exception {
        ProxyPullSupplier proxy = channel.for_consumers().obtain_pull_supplier();
        proxy.connect_pull_consumer(null);
        say("ready");
        int left = count;
        while (left > 0) {
            try {
                print(proxy.pull());
                left--;
            } catch (TRANSIENT expected) {
                // There is no event yet.
                Thread.sleep(10);
            }
        }
        BooleanHolder hasEvent = new BooleanHolder();
        proxy.try_pull(hasEvent);
        if (hasEvent.value) {
            say("one more event");
        }
        proxy.disconnect_pull_supplier();
    }

    private void serve() throws Exception {
        EventChannelImpl channel = new EventChannelImpl(orb, poa);
        say(orb.object_to_string(activate(channel)));
        while (System.in.read() >= 0) {
            // The starter of the program closes its end.
        }
    }

    public static void main(String[] arguments) throws Exception {
        String mode = arguments.length == 0 ? "" : arguments[0];
        Properties wanted = new Properties();
        wanted.put("org.omg.CORBA.ORBClass", "org.jacorb.orb.ORB");
        wanted.put("org.omg.CORBA.ORBSingletonClass", "org.jacorb.orb.ORBSingleton");
        wanted.put("OAIAddr", "127.0.0.1");
        ORB orb = ORB.init(new String[0], wanted);
        EventPeer peer = new EventPeer(orb);
        if (mode.equals("--serve")) {
            peer.serve();
        } else {
            EventChannel channel = EventChannelHelper.narrow(orb.string_to_object(arguments[1]));
            int count = Integer.parseInt(arguments[2]);
            switch (mode) {
                case "--push":
                    peer.push(channel, count);
                    break;
                case "--supply":
                    peer.supply(channel, count);
                    break;
                case "--consume":
                    peer.consume(channel, count);
                    break;
                case "--pull":
                    peer.pull(channel, count);
                    break;
                default:
                    throw new IllegalArgumentException(mode);
            }
        }
        say("done");
        orb.shutdown(true);
    }
}
