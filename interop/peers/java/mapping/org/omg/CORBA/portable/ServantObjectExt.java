package org.omg.CORBA.portable;

/**
 * A class of the Java mapping that generated stubs need and some ORBs lack. A stub reports the
 * outcome of a local call to it.
 */
public abstract class ServantObjectExt extends ServantObject {
    public abstract void normalCompletion();

    public abstract void exceptionalCompletion(Throwable raised);
}
