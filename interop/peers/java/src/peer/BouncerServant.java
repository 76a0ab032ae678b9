package peer;

import Interop.Bouncer;
import Interop.BouncerPOA;
import Interop.Details;
import Interop.Failure;
import Interop.Plain;
import Interop.Reason;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The servant of Bouncer, which the client and the server have. */
final class BouncerServant extends BouncerPOA {
    private final List<Integer> received = new ArrayList<>();

    @Override
    public int bounce(Bouncer other, int depth) {
        return depth <= 0 ? 0 : other.bounce(_this(), depth - 1) + 1;
    }

    @Override
    public int fail_back(Failure kind, int code, String text) throws Plain, Reason, Details {
        return Told.fail(kind, code, text);
    }

    @Override
    public synchronized void receive(int value) {
        received.add(value);
        notifyAll();
    }

    /**
     * Waits until this number of values has been received, at most for this time. Returns the received
     * values, sorted.
     */
    synchronized List<Integer> await(int count, long milliseconds) throws InterruptedException {
        long end = System.nanoTime() + milliseconds * 1_000_000;
        while (received.size() < count && System.nanoTime() < end) {
            wait(Math.max(1, (end - System.nanoTime()) / 1_000_000));
        }
        List<Integer> values = new ArrayList<>(received);
        Collections.sort(values);
        return values;
    }
}
