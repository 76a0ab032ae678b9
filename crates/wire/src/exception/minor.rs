//! Minor codes: vendor in the upper 20 bits, code in the lower 12 (CORBA 3.0.3 section 4.12.4, and
//! OMG 03-01-04).
//!
//! Each module has the name of the exception to which its codes belong.

use super::kind::SystemExceptionKind;

/// The vendor bits of the OMG's codes.
pub const OMG: u32 = 0x4f4d_0000;
/// The vendor bits of TAO's codes. Bits 7 to 11 give the place of the error, bits 0 to 6 `errno`.
pub const TAO: u32 = 0x5441_0000;
/// The vendor bits of omniORB's codes.
pub const OMNIORB: u32 = 0x4154_0000;
/// The vendor bits of JacORB's codes.
pub const JACORB: u32 = 0x4a43_0000;
/// The first of Corelane's 256 codes: docs/wire-extensions.md.
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
        pub static ALL: &[(SystemExceptionKind, u32, &str, &str)] =
            &[$($((SystemExceptionKind::$kind, $module::$name, stringify!($name), concat!($($doc),*)),)*)*];
    };
}

codes! {
    /// The codes of ACTIVITY_COMPLETED.
    activity_completed ActivityCompleted {
        /// Completed other than requested.
        OTHER_THAN_REQUESTED = 1;
    }

    /// The codes of ACTIVITY_REQUIRED.
    activity_required ActivityRequired {
        /// No activity context.
        NO_ACTIVITY_CONTEXT = 1;
    }

    /// The codes of BAD_CONTEXT.
    bad_context BadContext {
        /// IDL context not found.
        CONTEXT_NOT_FOUND = 1;
        /// No matching property.
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
        /// ServerRequest::arguments out of order.
        ARGUMENTS_ORDER = 7;
        /// ServerRequest::ctx out of order.
        CTX_ORDER = 8;
        /// ServerRequest::set_result out of order.
        SET_RESULT_ORDER = 9;
        /// The dynamic request was sent already.
        REQUEST_ALREADY_SENT = 10;
        /// Polled before it was sent.
        POLL_BEFORE_SEND = 11;
        /// The result was taken already.
        RESULT_ALREADY_TAKEN = 12;
        /// A synchronous dynamic request has no poll.
        POLL_ON_SYNCHRONOUS_REQUEST = 13;
        /// Not allowed at this interception point.
        INVALID_INTERCEPTOR_CALL = 14;
        /// A service context with this id exists.
        SERVICE_CONTEXT_EXISTS = 15;
        /// A policy factory for this type exists.
        POLICY_FACTORY_EXISTS = 16;
        /// Create_POA while the POA is being destroyed.
        POA_BEING_DESTROYED = 17;
        /// The priority is assigned already.
        PRIORITY_REASSIGNED = 18;
        /// Xa_start returned XAER_OUTSIDE.
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
        /// Not allowed in post_init.
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
        /// A name clash in the inherited context.
        INHERITED_NAME_CLASH = 5;
        /// The type is no abstract interface.
        ABSTRACT_INTERFACE_TYPE = 6;
        /// No known URL scheme.
        URL_SCHEME = 7;
        /// A bad address in a URL.
        URL_ADDRESS = 8;
        /// A bad scheme-specific part of a URL.
        URL_SCHEME_SPECIFIC_PART = 9;
        /// Another error in a URL.
        URL_OTHER = 10;
        /// An abstract interface with a non-abstract base.
        ABSTRACT_FROM_NON_ABSTRACT = 11;
        /// A value type supports more than one non-abstract interface.
        SUPPORTS_TWO_CONCRETE = 12;
        /// An incomplete TypeCode as an argument.
        INCOMPLETE_TYPE_CODE = 13;
        /// An invalid object id.
        INVALID_OBJECT_ID = 14;
        /// A bad name for a TypeCode.
        TYPE_CODE_NAME = 15;
        /// A bad repository id for a TypeCode.
        TYPE_CODE_REPOSITORY_ID = 16;
        /// A bad member name for a TypeCode.
        TYPE_CODE_MEMBER_NAME = 17;
        /// A duplicate label of a union.
        DUPLICATE_LABEL = 18;
        /// A label that does not fit the discriminator.
        LABEL_TYPE = 19;
        /// A type that cannot be a discriminator.
        DISCRIMINATOR_TYPE = 20;
        /// Set_exception with something else.
        SET_EXCEPTION_WITHOUT_EXCEPTION = 21;
        /// A user exception that is not listed.
        UNLISTED_USER_EXCEPTION = 22;
        /// No transmission code set for wide characters is known.
        NO_WIDE_CODE_SET = 23;
        /// The service context is not in the OMG's range.
        SERVICE_CONTEXT_NOT_OMG = 24;
        /// An enum value out of range.
        ENUM_RANGE = 25;
        /// An invalid service context id.
        INVALID_SERVICE_CONTEXT_ID = 26;
        /// A nil initial reference.
        NIL_INITIAL_REFERENCE = 27;
        /// An invalid component id.
        INVALID_COMPONENT_ID = 28;
        /// An invalid profile id.
        INVALID_PROFILE_ID = 29;
        /// One policy type stands twice in a list.
        DUPLICATE_POLICY_TYPE = 30;
        /// A oneway with results or exceptions.
        BAD_ONEWAY = 31;
        /// A dynamic request for an implicit operation.
        DYNAMIC_IMPLICIT_OPERATION = 32;
        /// An XA call returned XAER_INVAL.
        XA_INVALID = 33;
        /// A modifier called with a wrong discriminator.
        UNION_MODIFIER = 34;
        /// A bad property name.
        CONTEXT_PROPERTY_NAME = 35;
        /// A bad search string.
        CONTEXT_SEARCH_STRING = 36;
        /// A bad context name.
        CONTEXT_NAME = 37;
        /// The context is not empty.
        CONTEXT_NOT_EMPTY = 38;
        /// An unsupported RMI stream format.
        STREAM_FORMAT = 39;
        /// No ValueOutputStream.
        NO_VALUE_OUTPUT_STREAM = 40;
        /// No ValueInputStream.
        NO_VALUE_INPUT_STREAM = 41;
        /// Only ISO 8859-1 is possible here.
        ONLY_LATIN1 = 42;
        /// The Pollable is in another PollableSet.
        POLLABLE_IN_TWO_SETS = 43;
        /// A bad compression level (ZIOP).
        COMPRESSION_LEVEL = 44;
    }

    /// The codes of BAD_TYPECODE.
    bad_typecode BadTypecode {
        /// An incomplete TypeCode was to be sent.
        INCOMPLETE = 1;
        /// A member with an illegitimate TypeCode.
        ILLEGITIMATE_MEMBER = 2;
        /// A TypeCode that cannot be a parameter.
        ILLEGAL_PARAMETER = 3;
    }

    /// The codes of CODESET_INCOMPATIBLE.
    codeset_incompatible CodesetIncompatible {
        /// No code set that both sides have.
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
        /// No usable profile in the reference.
        NO_USABLE_PROFILE = 1;
    }

    /// The codes of INITIALIZE.
    initialize Initialize {
        /// The range of priorities is too restricted.
        PRIORITY_RANGE = 1;
    }

    /// The codes of INTF_REPOS.
    intf_repos IntfRepos {
        /// No interface repository.
        UNAVAILABLE = 1;
        /// No entry for the interface.
        NO_ENTRY = 2;
    }

    /// The codes of INV_OBJREF.
    inv_objref InvObjref {
        /// No support for wchar in the reference's code sets.
        NO_WCHAR_SUPPORT = 1;
        /// The reference names no code sets.
        CODE_SET_COMPONENT_REQUIRED = 2;
    }

    /// The codes of INV_POLICY.
    inv_policy InvPolicy {
        /// The policies of reference and client cannot be reconciled.
        IRRECONCILABLE = 1;
        /// An invalid policy type.
        INVALID_TYPE = 2;
        /// No factory for this policy type.
        NO_FACTORY = 3;
    }

    /// The codes of MARSHAL.
    marshal Marshal {
        /// No value factory.
        NO_VALUE_FACTORY = 1;
        /// Set_result before ctx.
        SET_RESULT_BEFORE_CTX = 2;
        /// The argument list does not fit.
        ARGUMENT_LIST = 3;
        /// A local object cannot be sent.
        LOCAL_OBJECT = 4;
        /// Wide data of a client in GIOP 1.0.
        WIDE_FROM_CLIENT_IN_GIOP_1_0 = 5;
        /// Wide data of a server in GIOP 1.0.
        WIDE_FROM_SERVER_IN_GIOP_1_0 = 6;
        /// An unsupported RMI stream format.
        STREAM_FORMAT = 7;
        /// Custom data does not fit the custom marshaller.
        CUSTOM_DATA_MISMATCH = 8;
        /// The code sets changed on a connection.
        CODE_SETS_CHANGED = 9;
    }

    /// The codes of NO_IMPLEMENT.
    no_implement NoImplement {
        /// No local implementation of the value.
        NO_LOCAL_VALUE = 1;
        /// An incompatible version of the value.
        INCOMPATIBLE_VALUE = 2;
        /// No usable profile in the reference.
        NO_USABLE_PROFILE = 3;
        /// Dynamic invocation of a local object.
        DYNAMIC_ON_LOCAL = 4;
        /// The operation does not exist for local objects.
        NOT_IN_LOCAL_OBJECT = 8;
    }

    /// The codes of NO_RESOURCES.
    no_resources NoResources {
        /// An interceptor operation that is not possible in this binding.
        INTERCEPTOR_OPERATION = 1;
        /// No connection for the priority of the request.
        NO_CONNECTION_FOR_PRIORITY = 2;
    }

    /// The codes of OBJ_ADAPTER.
    obj_adapter ObjAdapter {
        /// Unknown_adapter raised a system exception.
        UNKNOWN_ADAPTER_RAISED = 1;
        /// The servant manager returned a servant of the wrong type.
        WRONG_SERVANT_TYPE = 2;
        /// No default servant.
        NO_DEFAULT_SERVANT = 3;
        /// No servant manager.
        NO_SERVANT_MANAGER = 4;
        /// Incarnate broke a policy of the POA.
        INCARNATE_POLICY = 5;
        /// Components_established raised.
        COMPONENTS_ESTABLISHED = 6;
        /// The servant manager returned no servant.
        NULL_SERVANT = 7;
    }

    /// The codes of OBJECT_NOT_EXIST.
    object_not_exist ObjectNotExist {
        /// An unactivated value as a reference.
        UNACTIVATED_VALUE = 1;
        /// No such object, or no such adapter.
        NO_OBJECT_OR_ADAPTER = 2;
        /// The adapter is inactive.
        ADAPTER_INACTIVE = 4;
        /// The poller has delivered already.
        POLLER_DELIVERED = 5;
    }

    /// The codes of TIMEOUT.
    timeout Timeout {
        /// The poller's time-out.
        POLLER = 1;
        /// The request's end time.
        REQUEST_END_TIME = 2;
        /// The reply's end time.
        REPLY_END_TIME = 3;
    }

    /// The codes of TRANSIENT.
    transient Transient {
        /// The request was discarded, or resources ran out.
        DISCARDED = 1;
        /// No usable profile or connection.
        NO_USABLE_PROFILE = 2;
        /// The request was cancelled.
        CANCELLED = 3;
        /// The POA was destroyed.
        POA_DESTROYED = 4;
    }

    /// The codes of UNKNOWN.
    unknown Unknown {
        /// A user exception that the operation does not list.
        UNLISTED_USER_EXCEPTION = 1;
        /// A system exception that is not known.
        NON_STANDARD_SYSTEM_EXCEPTION = 2;
        /// A user exception that is not known to the interceptor.
        UNKNOWN_USER_EXCEPTION = 3;
    }
}
