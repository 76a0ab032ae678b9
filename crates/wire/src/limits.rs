//! Every bound on what a peer may make this process hold or do, in one value.

/// Bounds on received data, each with the attack that it stops.
///
/// ```
/// use corelane_wire::Limits;
/// let limits = Limits { message_size: 2 << 20, ..Limits::default() };
/// assert_eq!(limits.contexts, Limits::DEFAULT.contexts);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of one message after its 12-octet header, fragments put together. Stops a header, or an endless row of
    /// fragments, that announces more than the process can hold. 64 MiB.
    pub message_size: u32,
    /// Octets of one string, terminator included. Stops a peer from making an application hold (and log, and
    /// compare) a name of tens of megabytes where the message size allows it. 16 MiB.
    pub string_length: u32,
    /// Elements of one sequence. The count is also compared with the octets that are left, so this only narrows what
    /// a message of the full size may hold. 64 Mi.
    pub sequence_length: u32,
    /// Octets that the elements of all sequences of one message take in memory, numbers and such apart, which take as many as in the
    /// message. Stops a message of a megabyte whose elements, unions with a large member for instance, have one octet each there
    /// and kilobytes here. 512 MiB.
    pub sequence_memory: usize,
    /// Depth of values inside values of their own type (recursive structs and unions, TypeCodes, any in any). Stops
    /// a message of some kilobytes from exhausting the thread's stack. 128.
    pub nesting: u32,
    /// Values (IDL `valuetype`) of one message. Stops a message of some megabytes that becomes as many objects of several times
    /// its size. 262,144.
    pub values: u32,
    /// Repository ids in front of one value. Stops a list that is searched again for each of many values. 32.
    pub repository_ids: u32,
    /// Octets of one repository id in front of a value, NUL included. As for their number. 512.
    pub repository_id: u32,
    /// Service contexts of one message. Stops a message that makes every request walk a list of a million entries. 128.
    pub contexts: u32,
    /// Profiles of one object reference. Stops a reference that makes a client try thousands of addresses. 64.
    pub profiles: u32,
    /// Components of one profile. As for the profiles. 64.
    pub components: u32,
    /// Endpoints of lanes in one profile: each native priority can have a lane, and each lane several addresses. Stops a reference that
    /// makes a client keep a table of connections for tens of thousands of addresses; a list beyond it counts as not there. 1,024.
    pub lane_endpoints: u32,
    /// Messages of one connection of which the first fragment has come and the last has not. Stops a peer that opens
    /// thousands of fragmented requests and finishes none. 128.
    pub pending_fragmented: u32,
    /// Octets held for all unfinished fragmented messages of one connection. Stops a peer that stays below the count
    /// above with large ones. 64 MiB.
    pub pending_octets: u32,
    /// Fragments of one message. Stops a peer that keeps a request alive and a thread busy with fragments without
    /// data. 131,072: a message of the full size in fragments of 1,024 octets, the smallest that ORBs send, twice.
    pub fragments: u32,
    /// Requests of one connection that are read and do not run yet; past it nothing more is read until one of them does. Stops a peer
    /// that pipelines from making a server hold requests without end. In a queue that several connections share, one of them
    /// has less: see the dispatch of the pool. 4,096.
    pub outstanding_requests: u32,
    /// Characters of a stringified reference or of a corbaloc or corbaname URL. Stops a text file that is parsed into
    /// tens of megabytes. 1 MiB.
    pub reference_text: u32,
}

impl Limits {
    /// The bounds that hold unless others are given.
    pub const DEFAULT: Limits = Limits {
        message_size: 64 << 20,
        string_length: 16 << 20,
        sequence_length: 64 << 20,
        sequence_memory: 512 << 20,
        nesting: 128,
        values: 1 << 18,
        repository_ids: 32,
        repository_id: 512,
        contexts: 128,
        profiles: 64,
        components: 64,
        lane_endpoints: 1024,
        pending_fragmented: 128,
        pending_octets: 64 << 20,
        fragments: 1 << 17,
        outstanding_requests: 4096,
        reference_text: 1 << 20,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
