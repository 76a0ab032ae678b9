//! The limits on the memory and the work that a peer can cause in this process.

/// Bounds on received data, most of them with an attack that they stop.
///
/// ```
/// use corelane_wire::Limits;
/// let limits = Limits { max_message_size: 2 << 20, ..Limits::default() };
/// assert_eq!(limits.max_service_contexts, Limits::DEFAULT.max_service_contexts);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of one assembled message in bytes, without its 12-byte header. Default: 64 MiB.
    pub max_message_size: u32,
    /// Size of one string in bytes, terminator included. Stops a name of tens of megabytes, which
    /// an application would keep, log and compare. Default: 16 MiB.
    pub max_string_length: u32,
    /// Elements of one sequence. Default: 64 Mi elements.
    pub max_sequence_length: u32,
    /// Memory in bytes that decoding one message may take. Stops a message of a megabyte whose
    /// elements take kilobytes in memory, such as unions with a large member. Default: 512 MiB.
    pub max_decoded_bytes: usize,
    /// Nesting depth of values inside values of their own type: recursive structs and unions,
    /// TypeCodes, `any` in `any`. Stops a message of some kilobytes from exhausting the thread's
    /// stack. Default: 128.
    pub max_nesting: u32,
    /// Values (IDL `valuetype`) of one message. Stops a message of some megabytes that becomes
    /// objects of several times its size. Default: 262,144.
    pub max_values: u32,
    /// Repository ids in front of one value. Stops a long list of ids that the receiver would
    /// search again for each of many values. Default: 32.
    pub max_repository_ids: u32,
    /// Size in bytes of one repository id in front of a value, NUL included. Stops long ids that
    /// the receiver would compare again for each of many values. Default: 512.
    pub max_repository_id_length: u32,
    /// Service contexts of one message. Stops a message that makes every request walk a list of a
    /// million entries. Default: 128.
    pub max_service_contexts: u32,
    /// Profiles of one object reference. Stops a reference that makes a client try thousands of
    /// addresses. Default: 64.
    pub max_profiles: u32,
    /// Components of one profile. Stops a profile that makes every search walk thousands of
    /// components. Default: 64.
    pub max_components: u32,
    /// Lane endpoints in one profile: each native priority can have a lane, and each lane several
    /// addresses. Stops a reference that makes a client keep a connection table for tens of
    /// thousands of addresses. A longer list is ignored. Default: 1,024.
    pub max_lane_endpoints: u32,
    /// Messages of one connection whose first fragment has arrived and whose last has not. Stops a
    /// peer that opens thousands of fragmented requests and finishes none. Default: 128.
    pub max_partial_messages: u32,
    /// Bytes held for all partial messages of one connection, apart from one message header. Stops
    /// a peer that sends few but large partial messages. Default: 64 MiB.
    pub max_partial_bytes: u32,
    /// Fragments of one message. Stops a peer that keeps a request alive and a thread busy with
    /// empty fragments. Default: 131,072.
    pub max_fragments: u32,
    /// Requests of one connection that are read and do not run yet; at this number the server stops
    /// reading. Stops a peer that pipelines requests from filling the server's memory. Default:
    /// 4,096.
    pub max_outstanding_requests: u32,
    /// Length in bytes of a stringified reference or of a corbaloc or corbaname URL. Stops a text
    /// file that is parsed into tens of megabytes. Default: 1 MiB.
    pub max_reference_text: u32,
}

impl Limits {
    /// The default bounds.
    pub const DEFAULT: Limits = Limits {
        max_message_size: 64 << 20,
        max_string_length: 16 << 20,
        max_sequence_length: 64 << 20,
        max_decoded_bytes: 512 << 20,
        max_nesting: 128,
        max_values: 1 << 18,
        max_repository_ids: 32,
        max_repository_id_length: 512,
        max_service_contexts: 128,
        max_profiles: 64,
        max_components: 64,
        max_lane_endpoints: 1024,
        max_partial_messages: 128,
        max_partial_bytes: 64 << 20,
        max_fragments: 1 << 17,
        max_outstanding_requests: 4096,
        max_reference_text: 1 << 20,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
