package peer;

import Interop.BenchPOA;
import Interop.Point;

/** The servant of Bench, the interface for benchmarks: each operation returns its argument. */
final class BenchServant extends BenchPOA {
    @Override
    public void nothing() {}

    @Override
    public byte bench_octet(byte v) {
        return v;
    }

    @Override
    public int bench_long(int v) {
        return v;
    }

    @Override
    public Point bench_point(Point v) {
        return v;
    }

    @Override
    public String bench_string(String v) {
        return v;
    }

    @Override
    public int[] bench_longs(int[] v) {
        return v;
    }

    @Override
    public byte[] bench_octets(byte[] v) {
        return v;
    }

    @Override
    public void bench_oneway(byte v) {}
}
