package peer;

import java.io.Serializable;

import javax.rmi.CORBA.Stub;
import javax.rmi.CORBA.Tie;
import javax.rmi.CORBA.UtilDelegate;
import javax.rmi.CORBA.ValueHandler;

import org.omg.CORBA.NO_IMPLEMENT;
import org.omg.CORBA.ORB;
import org.omg.CORBA.SystemException;
import org.omg.CORBA.portable.InputStream;
import org.omg.CORBA.portable.OutputStream;
import org.omg.SendingContext.RunTime;

/**
 * Provides ids in place of javax.rmi. JacORB asks javax.rmi for an id before it writes a value as an
 * abstract interface, although it then writes the value's own id. The existing implementations of
 * javax.rmi need internal classes that newer JDKs do not have.
 */
public final class RmiIds implements UtilDelegate, ValueHandler {
    @Override
    public ValueHandler createValueHandler() {
        return this;
    }

    @Override
    public String getRMIRepositoryID(Class<?> type) {
        return "RMI:" + type.getName() + ":0000000000000000";
    }

    @Override
    public String getCodebase(Class<?> type) {
        return null;
    }

    // ---- unused methods ----

    @Override
    public void writeValue(OutputStream out, Serializable value) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public Serializable readValue(InputStream in, int offset, Class<?> type, String id, RunTime sender) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public boolean isCustomMarshaled(Class<?> type) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public RunTime getRunTimeCodeBase() {
        throw new NO_IMPLEMENT();
    }

    @Override
    public Serializable writeReplace(Serializable value) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public java.rmi.RemoteException mapSystemException(SystemException exception) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public void writeAny(OutputStream out, Object value) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public Object readAny(InputStream in) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public void writeRemoteObject(OutputStream out, Object value) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public void writeAbstractObject(OutputStream out, Object value) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public void registerTarget(Tie tie, java.rmi.Remote target) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public void unexportObject(java.rmi.Remote target) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public Tie getTie(java.rmi.Remote target) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public Class<?> loadClass(String name, String codebase, ClassLoader loader) throws ClassNotFoundException {
        return Class.forName(name);
    }

    @Override
    public boolean isLocal(Stub stub) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public java.rmi.RemoteException wrapException(Throwable exception) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public Object copyObject(Object value, ORB orb) {
        throw new NO_IMPLEMENT();
    }

    @Override
    public Object[] copyObjects(Object[] values, ORB orb) {
        throw new NO_IMPLEMENT();
    }
}
