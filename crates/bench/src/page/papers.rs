//! Results of the papers, shown beside Corelane's.
//!
//! All numbers are from the texts and tables of the papers, and none from a curve.

#[derive(Debug)]
pub(crate) struct PaperTable {
    pub(crate) bench: &'static str,
    pub(crate) title: &'static str,
    pub(crate) columns: &'static [&'static str],
    /// A row with one cell is a remark, or names the source of the rows below it.
    pub(crate) rows: &'static [&'static [&'static str]],
}

/// Levine, Flores-Gaitan, Schmidt: An Empirical Evaluation of OS Support for Real-time CORBA ORBs,
/// 1999.
pub(crate) const FIRST: &str = "OS support for Real-time CORBA ORBs (1999), TAO 1.0, Pentium II 450 MHz";
/// The study that follows [`FIRST`], 2001: TAO 1.2 on COTS operating systems, among them Linux/RT
/// and QNX.
pub(crate) const SECOND: &str = "COTS operating systems for Real-time CORBA (2001), TAO 1.2, Pentium III 866 MHz";
/// Schmidt: Real-time Middleware for Distributed and Embedded Systems, 1999.
pub(crate) const SLIDES: &str = "Real-time middleware (slides, 1999), TAO";
/// Zhang, Gill, Lu: Real-Time Performance and Middleware for Multiprocessor and Multicore Linux
/// Platforms, 2009.
pub(crate) const MC_ORB: &str = "Multicore Linux platforms (MC-ORB), dual-core Pentium IV 3.4 GHz, Linux 2.6.17";

/// Kuhns, Schmidt, Levine: The Design and Performance of a Real-time I/O Subsystem, 1999.
pub(crate) const RIO: &str = "Real-time I/O subsystem (1999), SPARC5 170 MHz, Solaris 2.5.1, ATM 155 Mbit/s";

const NO_NUMBERS: &str = "no numbers in the text";

pub(crate) const TABLES: &[PaperTable] = &[
    PaperTable {
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
    PaperTable {
        bench: "call",
        title: "What the ORB takes of an operation, microseconds, VxWorks on a 200 MHz PowerPC",
        columns: &["operation", "overhead of the ORB"],
        rows: &[
            &[SLIDES],
            &["one-way over VME, end to end", "about 110"],
            &["two-way", "about 49"],
            &["Two-way latency over Ethernet and VME: no numbers in the text; VME is much faster."],
        ],
    },
    PaperTable {
        bench: "cubit",
        title: "Operation throughput (figures 7 and 2) as microseconds per operation, as far as the texts say",
        columns: &["system", "void", "long", "oneway"],
        rows: &[
            &[FIRST],
            &["Linux 2.0", "236", "236", "much slower than most others"],
            &["LynxOS", "259", "262", "about 72, the best"],
            &["VxWorks", "234", "239", "the slowest"],
            &["Windows NT", "about 310", "320", "also good"],
            &["Solaris", "about 400", "about 400", "175"],
            &["Sequences and structs: no numbers in the text."],
            &[SECOND],
            &["Linux, Linux/RT", "about 100 (10,000/s)", "about 100 (10,000/s)", "Linux: nearly half of the others"],
            &["QNX", "about 167 (6,000/s)", "about 167 (6,000/s)", "slower than Windows NT"],
            &["VxWorks", "about 182 (5,500/s)", "about 182 (5,500/s)", "slower than Windows NT"],
            &["Windows NT", "the slowest, with 2K", "the slowest, with 2K", "between Linux and QNX"],
            &["Sequences: no numbers in the text."],
        ],
    },
    PaperTable {
        bench: "mt",
        title: "Latency and jitter of the high-priority client in microseconds (figures 3 and 4; 4 to 6), priorities all different",
        columns: &["system", "no low-priority client", "at most", "jitter"],
        rows: &[
            &[FIRST],
            &["Linux 2.0", "236", "722 with 40 (no more could be run)", NO_NUMBERS],
            &["LynxOS", "307", "467 with 50", "low"],
            &["Solaris", "about 750", "over 900 with 50", "about 250"],
            &["VxWorks", "as LynxOS below 5 clients", "no more than 30 could be run", "very low, as LynxOS"],
            &["Windows NT", NO_NUMBERS, "unpredictable above 10", "the highest above 10"],
            &[SECOND],
            &["Linux/RT", NO_NUMBERS, NO_NUMBERS, "about 200, constant"],
            &["VxWorks", NO_NUMBERS, "nearly constant", "a tenth of any other's"],
            &["QNX", NO_NUMBERS, "a slight increase", "unchanged"],
            &["Windows NT, 2K", NO_NUMBERS, "grows linearly", "almost three times that of Linux/RT with 9"],
        ],
    },
    PaperTable {
        bench: "mt",
        title: "Latency and jitter of the low-priority clients (figures 5 and 6), priorities all different",
        columns: &["system", "latency", "jitter"],
        rows: &[
            &[FIRST],
            &["LynxOS", "stable", "low"],
            &["Solaris", "grows with their number", "grows with their number"],
            &["VxWorks", "grows rapidly", "grows very rapidly"],
            &["Windows NT", "as Solaris and VxWorks, with more variation", "the highest above 10"],
            &["No numbers in the text."],
        ],
    },
    PaperTable {
        bench: "mt-equal",
        title: "Latency and jitter by ORB, low priorities all equal",
        columns: &["ORB", "latency", "jitter"],
        rows: &[
            &[SLIDES],
            &["TAO", "the lowest with many clients; the high-priority client's always below the others'", "the lowest"],
            &["CORBAplus", NO_NUMBERS, "the highest and most variable"],
            &["No numbers in the text."],
        ],
    },
    PaperTable {
        bench: "inversion",
        title: "Priority inversion by concurrency and connection model",
        columns: &["model", "effect"],
        rows: &[
            &[SLIDES],
            &["a connection shared by priorities", "inversion from request to request, synchronization"],
            &["no control over threads", "inversion by threads and by packets, context switches"],
            &["No numbers in the text."],
        ],
    },
    PaperTable {
        bench: "architectures",
        title: "Thread pools compared",
        columns: &["architecture", "latency"],
        rows: &[&[SLIDES], &["TAO chose leader/followers. No numbers in the text."]],
    },
    PaperTable {
        bench: "cpu",
        title: "CPU overhead of calls between threads over collocated calls (figure 10), 10 runs of 10,000,000 calls",
        columns: &["system", "overhead", "scavenger thread"],
        rows: &[
            &[FIRST],
            &["Windows NT", "2.61 %", "never ran"],
            &["LynxOS", "5.73 %", "never ran"],
            &["Linux 2.0", "7.17 %, with a high standard deviation", "ran 2.1 to 2.4 times per 100 calls"],
            &["Solaris", "8.75 %", "never ran"],
            &["VxWorks", "17.6 %, standard deviation 6.75 % of the mean", "never ran"],
            &["A collocated call is one virtual function call, which took about 20 ns on each system."],
        ],
    },
    PaperTable {
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
            &["a time probe (VMEtro)", "1"],
            &[FIRST],
            &["demultiplexing in conventional ORBs", "about 17 % of the server's time"],
        ],
    },
    PaperTable {
        bench: "demux",
        title: "Demultiplexing POAs, servants and operations",
        columns: &["of what", "strategy"],
        rows: &[
            &[SLIDES],
            &["POA", "active: efficient and predictable, for transient and persistent references"],
            &["servant", "active: the most efficient and predictable; linear: costly"],
            &["operation", "perfect hashing: very predictable; others slower"],
            &["No numbers in the text."],
        ],
    },
    PaperTable {
        bench: "protocol",
        title: "Calls per second with and without marshalling, and with a header 15 octets shorter",
        columns: &["protocol", "with: min", "max", "mean", "without: min", "max", "mean"],
        rows: &[
            &[SLIDES],
            &["GIOP", "2878", "2937", "2906", "2912", "2976", "2949"],
            &["GIOPlite", "2883", "2978", "2943", "2911", "3003", "2967"],
            &["GIOPlite has no counterpart here."],
        ],
    },
    PaperTable {
        bench: "footprint",
        title: "Memory footprint of the libraries ACE and TAO, linked statically (figure 7)",
        columns: &["system", "size"],
        rows: &[
            &[SECOND],
            &["Windows NT, 2K", "the smallest"],
            &["QNX", "the largest for TAO"],
            &["Linux", "the largest for ACE"],
            &["No numbers in the text."],
        ],
    },
    PaperTable {
        bench: "rio",
        title: "Section 3.2.2: round trips of 64 bytes without other traffic (figure 7), microseconds",
        columns: &["threads that process protocols", "mean", "maximum", "minimum", "jitter"],
        rows: &[
            &[RIO],
            &["interrupt (default)", "653", "807", "613", "19.6"],
            &["RIO, real-time class", "665", "824", "620", "18.8"],
            &["RIO, system class", "799", "1014", "729", "38.0"],
        ],
    },
    PaperTable {
        bench: "rio",
        title: "Section 3.2.3: round trips beside bulk load (figure 9), microseconds",
        columns: &["subsystem", "mean", "maximum", "minimum", "jitter"],
        rows: &[
            &[RIO],
            &["default", "1072", "3158", "594", "497"],
            &["RIO", "946", "2038", "616", "282"],
            &["The bulk load is slightly slower with RIO (figure 10). No numbers in the text."],
        ],
    },
    PaperTable {
        bench: "rio",
        title: "Section 3.2.4: guaranteed bandwidth in periods of 10 ms, packets of 8 KB (figure 11)",
        columns: &["connection", "packets in a period", "bandwidth"],
        rows: &[
            &[RIO],
            &["priority 110", "8", "6.4 MB/s, received"],
            &["priority 105", "4", "3.2 MB/s, received"],
            &["priority 101", "2", "1.6 MB/s, received"],
            &["best effort", "available", "loses as much as the others get"],
        ],
    },
    PaperTable {
        bench: "cores-acceptance",
        title: "Accepted tasks at a utilization of 1.6 on two cores, by balance factor",
        columns: &["admission test", "0.1", "0.2", "0.3", "0.5"],
        rows: &[&[MC_ORB], &["Liu-Layland bound, exhaustive search", "94.97 %", "95.36 %", "96.44 %", "95.09 %"]],
    },
    PaperTable {
        bench: "cores-decide",
        title: "Decision about a request, in the times of table III: no times of the decision alone",
        columns: &["decision", "minimum", "mean", "maximum"],
        rows: &[
            &[MC_ORB],
            &["re-allocation of all threads, with their migration", "222 us", "235 us", "289 us"],
            &["rejection, with the request's way through the ORB", "39 us", "50 us", "107 us"],
        ],
    },
    PaperTable {
        bench: "cores-clock",
        title: "Figures 1 to 4: round trips by signal and clock offset (2y - x - z), microseconds",
        columns: &["what", "core", "mean", "standard deviation", "maximum"],
        rows: &[
            &[MC_ORB],
            &["round trip", "0", "20.715", "4.141", "-"],
            &["round trip", "1", "20.716", "4.138", "-"],
            &["offset", "0", "1.295", "2.228", "26.645"],
            &["offset", "1", "1.294", "2.091", "26.335"],
        ],
    },
    PaperTable {
        bench: "cores-migration",
        title: "Table II: migration one way, microseconds",
        columns: &["migration", "core", "minimum", "mean", "maximum"],
        rows: &[
            &[MC_ORB],
            &["self", "0", "16.58", "22.394", "40.352"],
            &["self", "1", "16.765", "22.418", "44.988"],
            &["running thread", "0", "18.289", "24.211", "32.653"],
            &["running thread", "1", "18.078", "23.785", "35.475"],
            &["sleeping thread", "0", "4.676", "5.207", "9.523"],
            &["sleeping thread", "1", "4.892", "5.894", "7.714"],
        ],
    },
    PaperTable {
        bench: "cores-balance",
        title: "Table I: load balancing between cores in 5 minutes, all tasks bound to one core",
        columns: &["tasks", "utilization", "imbalances", "min ns", "mean ns", "max ns", "total us"],
        rows: &[
            &[MC_ORB],
            &["10", "0.6", "211", "405", "983", "1899", "207"],
            &["30", "0.6", "210", "566", "1178", "2120", "247"],
            &["10", "1.0", "588", "536", "854", "1463", "509"],
            &["30", "1.0", "596", "671", "1124", "2069", "670"],
        ],
    },
    PaperTable {
        bench: "cores-path",
        title: "Table III: overhead from the receipt of a request to the notice of its thread, or to its rejection",
        columns: &["scenario", "minimum", "mean", "maximum"],
        rows: &[
            &[MC_ORB],
            &["task on the manager's core", "43 us", "55 us", "109 us"],
            &["task on the other core", "42 us", "58 us", "111 us"],
            &["thread moved from the other core", "50 us", "64 us", "121 us"],
            &["running tasks re-allocated", "222 us", "235 us", "289 us"],
            &["task rejected", "39 us", "50 us", "107 us"],
        ],
    },
    PaperTable {
        bench: "cores-misses",
        title: "Table IV: fraction of workloads with a deadline miss, without rejection, by balance factor",
        columns: &["utilization, ORB", "0.1", "0.2", "0.3", "0.5"],
        rows: &[
            &[MC_ORB],
            &["1.4, nORB", "0.4", "0", "0", "0"],
            &["1.4, MC-ORB*", "0", "0", "0", "0"],
            &["1.5, nORB", "0.8", "0.3", "0.1", "0.1"],
            &["1.5, MC-ORB*", "0", "0.1", "0.1", "0"],
            &["1.6, nORB", "1", "0.5", "0.1", "0.1"],
            &["1.6, MC-ORB*", "0.3", "0.5", "0.4", "0.3"],
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_as_many_cells_as_their_table() {
        for table in TABLES {
            let whole = |row: &&[&str]| row.len() == 1 || row.len() == table.columns.len();
            assert!(table.rows.iter().all(whole), "{}", table.title);
            assert_eq!(table.rows[0].len(), 1, "where {} is from", table.title);
        }
    }
}
