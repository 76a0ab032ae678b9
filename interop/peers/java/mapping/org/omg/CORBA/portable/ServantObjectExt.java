package org.omg.CORBA.portable;

/**
 * A class of the Java mapping that generated stubs need and some ORBs do not have. A stub calls it with
 * the outcome of a local call.
 */
public abstract class ServantObjectExt extends ServantObject {
    public abstract void normalCompletion();

    public abstract void exceptionalCompletion(Throwable raised);
}
