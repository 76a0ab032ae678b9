//! What the papers measured, beside which ours are shown. Only numbers that stand in their texts: their curves are not read off.

/// A table of a paper that one of our benchmarks repeats.
#[derive(Debug)]
pub(crate) struct Table {
    /// The benchmark.
    pub(crate) bench: &'static str,
    /// What it is, and where.
    pub(crate) title: &'static str,
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: &'static [&'static [&'static str]],
}

/// Levine, Flores-Gaitan, Schmidt: An Empirical Evaluation of OS Support for Real-time CORBA ORBs, 1999.
pub(crate) const FIRST: &str = "OS support for Real-time CORBA ORBs (1999), TAO 1.0, Pentium II 450 MHz";
/// The follow-up with TAO 1.2.
pub(crate) const SECOND: &str = "COTS operating systems for Real-time CORBA (2001), TAO 1.2, Pentium III 866 MHz";
/// Schmidt: Real-time Middleware for Distributed and Embedded Systems, 1999.
pub(crate) const SLIDES: &str = "Real-time middleware (slides, 1999), TAO";

pub(crate) const TABLES: &[Table] = &[
    Table {
        bench: "switch",
        title: "Table 1: context switch latency in microseconds, jitter in parentheses",
        columns: &["system", "suspend-resume", "yield", "synchronized suspend-resume"],
        rows: &[
            &[SECOND],
            &["VxWorks", "0.586 (0.025)", "0.649 (0.013)", "0.821 (0.019)"],
            &["QNX", "-", "0.470 (0.007)", "0.861 (0.003)"],
            &["Linux/RT", "-", "0.645 (0.007)", "2.88 (0.015)"],
            &["Linux 2.2", "-", "0.548 (0.006)", "2.559 (0.011)"],
            &["Windows NT", "1.147 (0.005)", "1.056 (0.006)", "1.914 (0.010)"],
            &["Windows 2K", "1.148 (0.004)", "1.075 (0.007)", "2.810 (0.016)"],
        ],
    },
    Table {
        bench: "cubit",
        title: "Operation throughput (figures 7 and 2) as microseconds per operation, as far as the texts say",
        columns: &["system", "void", "long", "oneway"],
        rows: &[
            &[FIRST],
            &["Linux 2.0", "236", "236", "the best but LynxOS"],
            &["LynxOS", "259", "262", "about 72"],
            &["VxWorks", "234", "239", "the slowest"],
            &["Windows NT", "about 310", "320", "-"],
            &["Solaris", "about 400", "about 400", "175"],
            &[SECOND],
            &["Linux, Linux/RT", "about 100", "about 100", "half of the others"],
            &["QNX", "about 167", "about 167", "-"],
            &["VxWorks", "about 182", "about 182", "-"],
        ],
    },
    Table {
        bench: "mt",
        title: "Latency of the high-priority client in microseconds (figures 3 and 4), priorities all different",
        columns: &["system", "no low-priority client", "at most", "jitter"],
        rows: &[
            &[FIRST],
            &["Linux 2.0", "236", "722 with 40 (no more could be run)", "-"],
            &["LynxOS", "307", "467 with 50", "low"],
            &["Solaris", "about 750", "over 900 with 50", "about 250"],
            &["VxWorks", "as LynxOS below 5 clients", "no more than 30 could be run", "low"],
            &["Windows NT", "-", "unpredictable above 10", "the highest"],
            &[SECOND],
            &["Linux/RT", "-", "-", "about 200, constant"],
        ],
    },
    Table {
        bench: "cpu",
        title: "CPU overhead of calls between threads over collocated calls (figure 10), 10 runs of 10,000,000 calls",
        columns: &["system", "overhead", "scavenger thread"],
        rows: &[
            &[FIRST],
            &["Windows NT", "2.61 %", "never ran"],
            &["LynxOS", "5.73 %", "never ran"],
            &["Linux 2.0", "7.17 %", "ran 2.1 to 2.4 times per 100 calls"],
            &["Solaris", "8.75 %", "never ran"],
            &["VxWorks", "17.6 %", "never ran"],
        ],
    },
    Table {
        bench: "stages",
        title: "Request demultiplexing by stage, microseconds",
        columns: &["stage", "time"],
        rows: &[
            &[SLIDES],
            &["request parsing", "2"],
            &["POA", "2"],
            &["servant", "3"],
            &["operation", "2"],
            &["demarshalling, upcall, marshalling of results", "depends on the operation"],
        ],
    },
    Table {
        bench: "protocol",
        title: "Calls per second with and without marshalling, and with a header 15 octets shorter",
        columns: &["protocol", "with: min", "max", "mean", "without: min", "max", "mean"],
        rows: &[
            &[SLIDES],
            &["GIOP", "2878", "2937", "2906", "2912", "2976", "2949"],
            &["GIOPlite", "2883", "2978", "2943", "2911", "3003", "2967"],
        ],
    },
];
