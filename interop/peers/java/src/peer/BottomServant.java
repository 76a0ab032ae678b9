package peer;

import Interop.Base;
import Interop.BottomPOA;
import Interop.RightPackage.Turned;

import java.util.Arrays;

/** The servant of Bottom, the most derived interface of the diamond. */
final class BottomServant extends BottomPOA {
    private volatile int shared;

    @Override
    public String base_name() {
        return "base";
    }

    @Override
    public String left_name() {
        return "left";
    }

    @Override
    public String right_name(int angle) throws Turned {
        if (angle != 0) {
            throw new Turned(angle);
        }
        return "right";
    }

    @Override
    public String bottom_name() {
        return "bottom";
    }

    @Override
    public int shared() {
        return shared;
    }

    @Override
    public void shared(int value) {
        shared = value;
    }

    @Override
    public Base[] copies(int count) {
        Base[] all = new Base[count];
        Arrays.fill(all, _this());
        return all;
    }
}
