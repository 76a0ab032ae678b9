//! Minor codes: vendor in the upper 20 bits, code in the lower 12 (CORBA 3.0.3 section 4.12.4, and
//! OMG 03-01-04).

use super::kind::SystemExceptionKind;

/// The vendor bits of the OMG's codes.
pub const OMG: u32 = 0x4f4d_0000;
/// The vendor bits of TAO's codes.
pub const TAO: u32 = 0x5441_0000;
/// The vendor bits of omniORB's codes.
pub const OMNIORB: u32 = 0x4154_0000;
/// The vendor bits of JacORB's codes.
pub const JACORB: u32 = 0x4a43_0000;
/// The first of Corelane's 256 codes (docs/wire-extensions.md).
pub const CORELANE: u32 = 0x434c_4e00;
/// The bits of a minor code that give the vendor.
pub const VENDOR_MASK: u32 = 0xffff_f000;

macro_rules! codes {
    ($($(#[$about:meta])* $module:ident $kind:ident { $($(#[doc = $doc:literal])* $name:ident = $number:literal;)* })*) => {
        $($(#[$about])*
        pub mod $module {
            use crate::exception::minor::OMG;

            $($(#[doc = $doc])*
            pub const $name: u32 = OMG | $number;)*
        })*

        /// Returns the name of an OMG code of an exception.
        #[must_use]
        pub fn name(kind: SystemExceptionKind, code: u32) -> Option<&'static str> {
            match (kind, code) {
                $($((SystemExceptionKind::$kind, $module::$name) => Some(stringify!($name)),)*)*
                _ => None,
            }
        }

        /// Every OMG code: its exception, the code, its name and its description.
        pub static OMG_CODES: &[(SystemExceptionKind, u32, &str, &str)] =
            &[$($((SystemExceptionKind::$kind, $module::$name, stringify!($name), concat!($($doc),*)),)*)*];
    };
}

codes! {
    /// The codes of ACTIVITY_COMPLETED.
    activity_completed ActivityCompleted {
        /// The activity was completed in another way than requested.
        OTHER_THAN_REQUESTED = 1;
    }

    /// The codes of ACTIVITY_REQUIRED.
    activity_required ActivityRequired {
        /// The request has no activity context.
        NO_ACTIVITY_CONTEXT = 1;
    }

    /// The codes of BAD_CONTEXT.
    bad_context BadContext {
        /// The IDL context was not found.
        CONTEXT_NOT_FOUND = 1;
        /// The context has no matching property.
        NO_MATCHING_PROPERTY = 2;
    }

    /// The codes of BAD_INV_ORDER.
    bad_inv_order BadInvOrder {
        /// A dependency exists in the interface repository.
        INTERFACE_REPOSITORY_DEPENDENCY = 1;
        /// The interface repository object cannot be destroyed.
        INDESTRUCTIBLE_OBJECT = 2;
        /// The operation would deadlock.
        WOULD_DEADLOCK = 3;
        /// The ORB is shut down.
        ORB_SHUT_DOWN = 4;
        /// The Request was sent already.
        REQUEST_SENT_TWICE = 5;
        /// The servant manager is set already.
        SERVANT_MANAGER_ALREADY_SET = 6;
        /// `ServerRequest::arguments` was called out of order.
        ARGUMENTS_ORDER = 7;
        /// `ServerRequest::ctx` was called out of order.
        CTX_ORDER = 8;
        /// `ServerRequest::set_result` was called out of order.
        SET_RESULT_ORDER = 9;
        /// The dynamic request was sent already.
        REQUEST_ALREADY_SENT = 10;
        /// A request was polled before it was sent.
        POLL_BEFORE_SEND = 11;
        /// The result was taken already.
        RESULT_ALREADY_TAKEN = 12;
        /// A synchronous dynamic request was polled.
        POLL_ON_SYNCHRONOUS_REQUEST = 13;
        /// The call is not allowed at this interception point.
        INVALID_INTERCEPTOR_CALL = 14;
        /// A service context with this id exists.
        SERVICE_CONTEXT_EXISTS = 15;
        /// A policy factory for this type exists.
        POLICY_FACTORY_EXISTS = 16;
        /// `create_POA` was called while the POA is being destroyed.
        POA_BEING_DESTROYED = 17;
        /// The priority is assigned already.
        PRIORITY_REASSIGNED = 18;
        /// `xa_start` returned XAER_OUTSIDE.
        XA_OUTSIDE = 19;
        /// An XA call returned XAER_PROTO.
        XA_PROTOCOL = 20;
        /// The transaction contexts differ.
        TRANSACTION_CONTEXT_MISMATCH = 21;
        /// The poller has no response yet.
        NO_RESPONSE_YET = 22;
        /// A TaggedProfileFactory for this tag exists.
        PROFILE_FACTORY_EXISTS = 23;
        /// A TaggedComponentFactory for this tag exists.
        COMPONENT_FACTORY_EXISTS = 24;
        /// The iteration is finished.
        ITERATION_FINISHED = 25;
        /// The call is not allowed in `post_init`.
        NOT_IN_POST_INIT = 26;
    }

    /// The codes of BAD_OPERATION.
    bad_operation BadOperation {
        /// The servant manager returned a servant of the wrong type.
        WRONG_SERVANT_TYPE = 1;
        /// The target has no such operation.
        UNKNOWN_OPERATION = 2;
    }

    /// The codes of BAD_PARAM.
    bad_param BadParam {
        /// The value factory could not be registered or found.
        VALUE_FACTORY = 1;
        /// The repository id is defined already.
        REPOSITORY_ID_TAKEN = 2;
        /// The name is used already.
        NAME_TAKEN = 3;
        /// The target is no valid container.
        BAD_CONTAINER = 4;
        /// Names clash in the inherited context.
        INHERITED_NAME_CLASH = 5;
        /// The type is no abstract interface.
        ABSTRACT_INTERFACE_TYPE = 6;
        /// The scheme of a URL is unknown.
        URL_SCHEME = 7;
        /// The address in a URL is malformed.
        URL_ADDRESS = 8;
        /// The scheme-specific part of a URL is malformed.
        URL_SCHEME_SPECIFIC_PART = 9;
        /// A URL has another error.
        URL_OTHER = 10;
        /// An abstract interface has a non-abstract base.
        ABSTRACT_FROM_NON_ABSTRACT = 11;
        /// A value type supports more than one non-abstract interface.
        SUPPORTS_TWO_CONCRETE = 12;
        /// A TypeCode in an argument is incomplete.
        INCOMPLETE_TYPE_CODE = 13;
        /// An object id is invalid.
        INVALID_OBJECT_ID = 14;
        /// The name of a TypeCode is not an identifier.
        TYPE_CODE_NAME = 15;
        /// The repository id of a TypeCode is malformed.
        TYPE_CODE_REPOSITORY_ID = 16;
        /// The name of a member of a TypeCode is invalid.
        TYPE_CODE_MEMBER_NAME = 17;
        /// Two members of a union have the same label.
        DUPLICATE_LABEL = 18;
        /// A label does not fit the discriminator.
        LABEL_TYPE = 19;
        /// The type of a discriminator is not permitted.
        DISCRIMINATOR_TYPE = 20;
        /// The argument of `set_exception` is not an exception.
        SET_EXCEPTION_WITHOUT_EXCEPTION = 21;
        /// The operation does not list the user exception.
        UNLISTED_USER_EXCEPTION = 22;
        /// No transmission code set for wide characters is known.
        NO_WIDE_CODE_SET = 23;
        /// The service context is not in the OMG's range.
        SERVICE_CONTEXT_NOT_OMG = 24;
        /// An enum value is out of range.
        ENUM_RANGE = 25;
        /// A service context id is invalid.
        INVALID_SERVICE_CONTEXT_ID = 26;
        /// An initial reference is nil.
        NIL_INITIAL_REFERENCE = 27;
        /// A component id is invalid.
        INVALID_COMPONENT_ID = 28;
        /// A profile id is invalid.
        INVALID_PROFILE_ID = 29;
        /// A list contains a policy type twice.
        DUPLICATE_POLICY_TYPE = 30;
        /// A oneway operation has results or exceptions.
        BAD_ONEWAY = 31;
        /// A dynamic request names an implicit operation.
        DYNAMIC_IMPLICIT_OPERATION = 32;
        /// An XA call returned XAER_INVAL.
        XA_INVALID = 33;
        /// A modifier was called with a wrong discriminator.
        UNION_MODIFIER = 34;
        /// The name of a property is invalid.
        CONTEXT_PROPERTY_NAME = 35;
        /// A search string is invalid.
        CONTEXT_SEARCH_STRING = 36;
        /// The name of a context is invalid.
        CONTEXT_NAME = 37;
        /// The context is not empty.
        CONTEXT_NOT_EMPTY = 38;
        /// The RMI stream format is not supported.
        STREAM_FORMAT = 39;
        /// A `ValueOutputStream` is missing.
        NO_VALUE_OUTPUT_STREAM = 40;
        /// A `ValueInputStream` is missing.
        NO_VALUE_INPUT_STREAM = 41;
        /// A character is not in ISO 8859-1, the only permitted code set.
        ONLY_LATIN1 = 42;
        /// The Pollable is in another PollableSet.
        POLLABLE_IN_TWO_SETS = 43;
        /// The compression level (ZIOP) is invalid.
        COMPRESSION_LEVEL = 44;
    }

    /// The codes of BAD_TYPECODE.
    bad_typecode BadTypecode {
        /// An incomplete TypeCode was to be sent.
        INCOMPLETE = 1;
        /// A member has an illegitimate TypeCode.
        ILLEGITIMATE_MEMBER = 2;
        /// The TypeCode of a parameter is not permitted.
        ILLEGAL_PARAMETER = 3;
    }

    /// The codes of CODESET_INCOMPATIBLE.
    codeset_incompatible CodesetIncompatible {
        /// The two sides have no common code set.
        NEGOTIATION_FAILED = 1;
        /// The client chose a code set that is not supported.
        DELIVERED_SET_UNSUPPORTED = 2;
    }

    /// The codes of DATA_CONVERSION.
    data_conversion DataConversion {
        /// The character is not in the transmission code set.
        CHARACTER_NOT_IN_CODE_SET = 1;
        /// A priority could not be mapped.
        PRIORITY_MAPPING_FAILED = 2;
    }

    /// The codes of IMP_LIMIT.
    imp_limit ImpLimit {
        /// The reference has no usable profile.
        NO_USABLE_PROFILE = 1;
    }

    /// The codes of INITIALIZE.
    initialize Initialize {
        /// The range of priorities is too restricted.
        PRIORITY_RANGE = 1;
    }

    /// The codes of INTF_REPOS.
    intf_repos IntfRepos {
        /// There is no interface repository.
        UNAVAILABLE = 1;
        /// The interface repository has no entry for the interface.
        NO_ENTRY = 2;
    }

    /// The codes of INV_OBJREF.
    inv_objref InvObjref {
        /// The code sets in the reference do not support wchar.
        NO_WCHAR_SUPPORT = 1;
        /// The reference names no code sets.
        CODE_SET_COMPONENT_REQUIRED = 2;
    }

    /// The codes of INV_POLICY.
    inv_policy InvPolicy {
        /// The policies of reference and client cannot be reconciled.
        IRRECONCILABLE = 1;
        /// The policy type is invalid.
        INVALID_TYPE = 2;
        /// There is no factory for this policy type.
        NO_FACTORY = 3;
    }

    /// The codes of MARSHAL.
    marshal Marshal {
        /// There is no factory for the type of a value.
        NO_VALUE_FACTORY = 1;
        /// `set_result` was called before `ctx`.
        SET_RESULT_BEFORE_CTX = 2;
        /// The argument list does not match the operation.
        ARGUMENT_LIST = 3;
        /// A local object cannot be sent.
        LOCAL_OBJECT = 4;
        /// A client sent wide data in GIOP 1.0.
        WIDE_FROM_CLIENT_IN_GIOP_1_0 = 5;
        /// A server sent wide data in GIOP 1.0.
        WIDE_FROM_SERVER_IN_GIOP_1_0 = 6;
        /// The RMI stream format is not supported.
        STREAM_FORMAT = 7;
        /// Custom data does not match the custom marshaller.
        CUSTOM_DATA_MISMATCH = 8;
        /// The code sets changed on a connection.
        CODE_SETS_CHANGED = 9;
    }

    /// The codes of NO_IMPLEMENT.
    no_implement NoImplement {
        /// There is no local implementation of the value.
        NO_LOCAL_VALUE = 1;
        /// The version of the value is incompatible.
        INCOMPATIBLE_VALUE = 2;
        /// The reference has no usable profile.
        NO_USABLE_PROFILE = 3;
        /// A local object was invoked dynamically.
        DYNAMIC_ON_LOCAL = 4;
        /// The operation does not exist for local objects.
        NOT_IN_LOCAL_OBJECT = 8;
    }

    /// The codes of NO_RESOURCES.
    no_resources NoResources {
        /// The language binding does not support the interceptor operation.
        INTERCEPTOR_OPERATION = 1;
        /// There is no connection for the priority of the request.
        NO_CONNECTION_FOR_PRIORITY = 2;
    }

    /// The codes of OBJ_ADAPTER.
    obj_adapter ObjAdapter {
        /// `unknown_adapter` raised a system exception.
        UNKNOWN_ADAPTER_RAISED = 1;
        /// The servant manager returned a servant of the wrong type.
        WRONG_SERVANT_TYPE = 2;
        /// The POA has no default servant.
        NO_DEFAULT_SERVANT = 3;
        /// The POA has no servant manager.
        NO_SERVANT_MANAGER = 4;
        /// `incarnate` broke a policy of the POA.
        INCARNATE_POLICY = 5;
        /// `components_established` raised an exception.
        COMPONENTS_ESTABLISHED = 6;
        /// The servant manager returned no servant.
        NULL_SERVANT = 7;
    }

    /// The codes of OBJECT_NOT_EXIST.
    object_not_exist ObjectNotExist {
        /// A value that is not activated was used as a reference.
        UNACTIVATED_VALUE = 1;
        /// The object or its adapter does not exist.
        NO_OBJECT_OR_ADAPTER = 2;
        /// The adapter is inactive.
        ADAPTER_INACTIVE = 4;
        /// The poller has already delivered the reply.
        POLLER_DELIVERED = 5;
    }

    /// The codes of TIMEOUT.
    timeout Timeout {
        /// The poller's time-out expired.
        POLLER = 1;
        /// The end time of the request passed.
        REQUEST_END_TIME = 2;
        /// The end time of the reply passed.
        REPLY_END_TIME = 3;
    }

    /// The codes of TRANSIENT.
    transient Transient {
        /// The request was discarded, or resources ran out.
        DISCARDED = 1;
        /// There is no usable profile or connection.
        NO_USABLE_PROFILE = 2;
        /// The request was cancelled.
        CANCELLED = 3;
        /// The POA was destroyed.
        POA_DESTROYED = 4;
    }

    /// The codes of UNKNOWN.
    unknown Unknown {
        /// The operation does not list the user exception.
        UNLISTED_USER_EXCEPTION = 1;
        /// The system exception is unknown.
        NON_STANDARD_SYSTEM_EXCEPTION = 2;
        /// The interceptor does not know the user exception.
        UNKNOWN_USER_EXCEPTION = 3;
    }
}
