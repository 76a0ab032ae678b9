package peer;

import Interop.Details;
import Interop.Failure;
import Interop.OnBoolean;
import Interop.Plain;
import Interop.Point;
import Interop.Reason;

import org.omg.CORBA.CompletionStatus;
import org.omg.CORBA.SystemException;

/** Raises the exceptions that Failures::fail and fail_system describe. */
final class Told {
    static final String[] SYSTEM_EXCEPTIONS = {
        "UNKNOWN", "BAD_PARAM", "NO_MEMORY", "IMP_LIMIT", "INV_OBJREF", "NO_PERMISSION", "INTERNAL", "MARSHAL", "NO_IMPLEMENT",
        "BAD_OPERATION", "NO_RESOURCES", "NO_RESPONSE", "BAD_INV_ORDER", "DATA_CONVERSION", "OBJECT_NOT_EXIST", "INV_POLICY",
    };

    private Told() {}

    static int fail(Failure kind, int code, String text) throws Plain, Reason, Details {
        switch (kind.value()) {
            case Failure._FAIL_NOT:
                return code;
            case Failure._FAIL_PLAIN:
                throw new Plain();
            case Failure._FAIL_REASON:
                throw new Reason(code, text);
            default:
                throw details(code, text);
        }
    }

    static Details details(int code, String text) {
        OnBoolean choice = new OnBoolean();
        choice.no(text);
        return new Details(new int[] {code, code + 1}, new String[] {text, ""}, new Point(code, -code), choice);
    }

    static void system(String name, int minor, short completed) {
        if (!java.util.Arrays.asList(SYSTEM_EXCEPTIONS).contains(name)) {
            return;
        }
        SystemException exception;
        try {
            exception = (SystemException) Class.forName("org.omg.CORBA." + name)
                .getConstructor(int.class, CompletionStatus.class)
                .newInstance(minor, CompletionStatus.from_int(completed));
        } catch (ReflectiveOperationException problem) {
            throw new org.omg.CORBA.INTERNAL(problem.toString());
        }
        throw exception;
    }
}
