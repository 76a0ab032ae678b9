//! The limits on the memory and the work that a peer can cause in this process.

/// Limits on the data that a peer sends. Most descriptions name the attack that the limit stops.
///
/// ```
/// use corelane_wire::Limits;
/// let limits = Limits { max_message_size: 2 << 20, ..Limits::default() };
/// assert_eq!(limits.max_service_contexts, Limits::DEFAULT.max_service_contexts);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of one message in bytes, fragments assembled, without its 12-byte header. Default: 64
    /// MiB.
    pub max_message_size: u32,
    /// Length field of one string or wstring: bytes, or code units of a GIOP 1.1 wstring. Stops a
    /// name of tens of megabytes. Default: 16 MiB.
    pub max_string_length: u32,
    /// Elements of one sequence. Default: 64 Mi elements.
    pub max_sequence_length: u32,
    /// Memory in bytes that decoding one message may take. Stops a message of a megabyte whose
    /// elements take kilobytes in memory, such as unions with a large member. Default: 512 MiB.
    pub max_decoded_bytes: usize,
    /// Nesting depth of values inside values: sequences, recursive structs and unions, TypeCodes,
    /// `any` in `any`. Stops a message of some kilobytes from exhausting the thread's stack.
    /// Default: 128.
    pub max_nesting: u32,
    /// Values (IDL `valuetype`) of one message. Stops a message of some megabytes that becomes
    /// objects of several times its size. Default: 262,144.
    pub max_valuetype_instances: u32,
    /// Repository ids in front of one value. Stops long lists of ids, which the receiver searches
    /// once for each value. Default: 32.
    pub max_repository_ids: u32,
    /// Size in bytes of one repository id in front of a value, NUL included. Stops long ids, which
    /// the receiver compares once for each value. Default: 512.
    pub max_repository_id_length: u32,
    /// Service contexts of one message. Stops a message that makes every request walk a list of a
    /// million entries. Default: 128.
    pub max_service_contexts: u32,
    /// Profiles of one object reference, addresses of one corbaloc URL, or protocols of one policy.
    /// Stops a reference that makes a client try thousands of addresses. Default: 64.
    pub max_profiles: u32,
    /// Components of one profile, or policies of one list. Stops a profile that makes every search
    /// walk thousands of components. Default: 64.
    pub max_tagged_components: u32,
    /// Lane endpoints in one profile. A longer list is ignored. Stops a reference that makes a
    /// client keep a connection table for tens of thousands of addresses. Default: 1,024.
    pub max_lane_endpoints: u32,
    /// Messages of one connection whose first fragment has arrived and whose last has not. Stops a
    /// peer that opens thousands of fragmented requests and finishes none. Default: 128.
    pub max_partial_messages: u32,
    /// Bytes buffered for all partial messages of one connection, in addition to one 12-byte
    /// header. Stops a peer that sends few but large partial messages. Default: 64 MiB.
    pub max_partial_message_bytes: u32,
    /// Fragments of one message, the first included. Stops a peer that keeps a request alive and a
    /// thread busy with empty fragments. Default: 131,072.
    pub max_fragments: u32,
    /// Requests of one connection that the server has read and not yet run; at this number it stops
    /// reading. Stops a peer that pipelines requests from filling the server's memory. Default:
    /// 4,096.
    pub max_outstanding_requests: u32,
    /// Length in bytes of a stringified reference or of a corbaloc or corbaname URL. Stops a text
    /// file that is parsed into tens of megabytes. Default: 1 MiB.
    pub max_reference_text_length: u32,
}

impl Limits {
    /// The default bounds.
    pub const DEFAULT: Limits = Limits {
        max_message_size: 64 << 20,
        max_string_length: 16 << 20,
        max_sequence_length: 64 << 20,
        max_decoded_bytes: 512 << 20,
        max_nesting: 128,
        max_valuetype_instances: 1 << 18,
        max_repository_ids: 32,
        max_repository_id_length: 512,
        max_service_contexts: 128,
        max_profiles: 64,
        max_tagged_components: 64,
        max_lane_endpoints: 1024,
        max_partial_messages: 128,
        max_partial_message_bytes: 64 << 20,
        max_fragments: 1 << 17,
        max_outstanding_requests: 4096,
        max_reference_text_length: 1 << 20,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}
