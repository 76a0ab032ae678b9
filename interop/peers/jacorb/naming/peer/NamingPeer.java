package peer;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import org.jacorb.naming.Name;
import org.omg.CORBA.ORB;
import org.omg.CORBA.SystemException;
import org.omg.CORBA.UserException;
import org.omg.CosNaming.Binding;
import org.omg.CosNaming.BindingHolder;
import org.omg.CosNaming.BindingIterator;
import org.omg.CosNaming.BindingIteratorHelper;
import org.omg.CosNaming.BindingIteratorHolder;
import org.omg.CosNaming.BindingListHolder;
import org.omg.CosNaming.BindingType;
import org.omg.CosNaming.NameComponent;
import org.omg.CosNaming.NamingContext;
import org.omg.CosNaming.NamingContextExt;
import org.omg.CosNaming.NamingContextExtHelper;
import org.omg.CosNaming.NamingContextHelper;
import org.omg.CosNaming.NamingContextPackage.CannotProceed;
import org.omg.CosNaming.NamingContextPackage.NotFound;

/**
 * Makes the calls of interop/naming.table on the objects that the arguments name, and prints the report of a client.
 *
 * <pre>
 * TABLE NAME=REFERENCE...
 * </pre>
 */
public final class NamingPeer {
    private static final String[] REASONS = {"missing_node", "not_context", "not_object"};

    private final Map<String, org.omg.CORBA.Object> objects = new HashMap<>();

    private static NameComponent[] parse(String text) throws UserException {
        return text.equals("-") ? new NameComponent[0] : Name.toName(text);
    }

    private static String show(NameComponent[] name) throws UserException {
        return name.length == 0 ? "-" : Name.toString(name);
    }

    private boolean is(org.omg.CORBA.Object object, String name) {
        org.omg.CORBA.Object known = objects.get(name);
        return object != null && known != null && known._is_equivalent(object);
    }

    /** Shows an object as the expected result does, if it is the expected object. */
    private String show(org.omg.CORBA.Object object, String expected) {
        if (object == null) {
            return "nil";
        }
        if (expected.startsWith("new ")) {
            objects.put(expected.substring(4), object);
            return expected;
        }
        return expected.startsWith("is ") && is(object, expected.substring(3)) ? expected : "another object";
    }

    private static String names(NamingContext context) throws UserException {
        TreeSet<String> names = new TreeSet<>();
        BindingListHolder list = new BindingListHolder();
        BindingIteratorHolder iterator = new BindingIteratorHolder();
        context.list(1, list, iterator);
        boolean hasMore = true;
        while (hasMore) {
            for (Binding binding : list.value) {
                String end = binding.binding_type.value() == BindingType._ncontext ? "/" : "";
                names.add(show(binding.binding_name) + end);
            }
            hasMore = iterator.value != null && iterator.value.next_n(2, list);
        }
        if (iterator.value != null) {
            iterator.value.destroy();
        }
        return String.join(" ", names);
    }

    private static String iterate(BindingIterator iterator, String operation, String argument) {
        switch (operation) {
            case "next_one":
                return String.valueOf(iterator.next_one(new BindingHolder()));
            case "next_n":
                BindingListHolder list = new BindingListHolder();
                return iterator.next_n(Integer.parseInt(argument), list) + " " + list.value.length;
            default:
                iterator.destroy();
                return "done";
        }
    }

    private String call(String[] words, String expected) throws UserException {
        org.omg.CORBA.Object object = objects.get(words[1]);
        String operation = words[2];
        String first = words.length > 3 ? words[3] : "";
        String second = words.length > 4 ? words[4] : "";
        if (Arrays.asList("next_one", "next_n", "destroy_iterator").contains(operation)) {
            return iterate(BindingIteratorHelper.unchecked_narrow(object), operation, first);
        }
        NamingContextExt context = NamingContextExtHelper.unchecked_narrow(object);
        org.omg.CORBA.Object target = second.equals("nil") ? null : objects.get(second);
        switch (operation) {
            case "bind":
                context.bind(parse(first), target);
                return "done";
            case "rebind":
                context.rebind(parse(first), target);
                return "done";
            case "bind_context":
                context.bind_context(parse(first), NamingContextHelper.unchecked_narrow(target));
                return "done";
            case "rebind_context":
                context.rebind_context(parse(first), NamingContextHelper.unchecked_narrow(target));
                return "done";
            case "unbind":
                context.unbind(parse(first));
                return "done";
            case "destroy":
                context.destroy();
                return "done";
            case "names":
                return names(context);
            case "list":
                BindingListHolder list = new BindingListHolder();
                BindingIteratorHolder iterator = new BindingIteratorHolder();
                context.list(Integer.parseInt(first), list, iterator);
                return list.value.length + " " + show(iterator.value, expected.substring(expected.indexOf(' ') + 1));
            case "resolve":
                return show(context.resolve(parse(first)), expected);
            case "resolve_str":
                return show(context.resolve_str(first), expected);
            case "new_context":
                return show(context.new_context(), expected);
            case "bind_new_context":
                return show(context.bind_new_context(parse(first)), expected);
            case "to_string":
                return context.to_string(parse(first));
            case "to_name":
                return show(context.to_name(first));
            case "to_url":
                return context.to_url(first.equals("-") ? "" : first, second);
            default:
                return "there is no operation " + operation;
        }
    }

    private String outcome(String[] words, String expected) {
        try {
            try {
                return call(words, expected);
            } catch (NotFound raised) {
                return "NotFound " + REASONS[raised.why.value()] + " " + show(raised.rest_of_name);
            } catch (CannotProceed raised) {
                String context = (expected + " - -").split(" ")[1];
                String shown = is(raised.cxt, context) ? context : raised.cxt == null ? "nil" : "another";
                return "CannotProceed " + shown + " " + show(raised.rest_of_name);
            }
        } catch (UserException | SystemException raised) {
            return raised.getClass().getSimpleName();
        } catch (RuntimeException raised) {
            return raised.toString();
        }
    }

    /** Runs the program. */
    public static void main(String[] arguments) throws Exception {
        ORB orb = ORB.init(arguments, null);
        NamingPeer peer = new NamingPeer();
        for (String word : Arrays.asList(arguments).subList(1, arguments.length)) {
            String[] sides = word.split("=", 2);
            peer.objects.put(sides[0], orb.string_to_object(sides[1]));
        }
        int passed = 0;
        int failed = 0;
        for (String line : Files.readAllLines(Paths.get(arguments[0]), StandardCharsets.UTF_8)) {
            if (line.isEmpty() || line.startsWith("#")) {
                continue;
            }
            String[] sides = line.split(" -> ", 2);
            String[] words = sides[0].split(" ");
            String got = peer.outcome(words, sides[1]);
            if (got.equals(sides[1])) {
                passed++;
                System.out.println("ok " + words[0]);
            } else {
                failed++;
                System.out.println("FAIL " + words[0] + " expected " + sides[1] + " got " + got);
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        orb.shutdown(true);
    }
}
