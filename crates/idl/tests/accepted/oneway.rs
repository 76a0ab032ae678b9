// Made by the IDL compiler of Corelane from oneway.idl. Changes here are lost.

/// Oneway by an annotation, and not.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub trait I: Send + Sync + 'static {
    fn f(&self, x: i32) -> Result<(), corelane::SystemException>;
    fn g(&self, x: i32) -> Result<(), corelane::SystemException>;

    /// A servant that runs these operations, to be activated.
    fn servant(this: Self) -> corelane::Servant
    where
        Self: Sized,
    {
        I::servant_of(std::sync::Arc::new(this))
    }

    /// The same for an object that others keep too.
    fn servant_of(this: std::sync::Arc<Self>) -> corelane::Servant
    where
        Self: Sized,
    {
        corelane::Servant::new(ISkeleton(this))
    }
}

/// A reference to a [`I`].
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IRef(corelane::ObjectRef);

impl corelane::Reference for IRef {
    const REPOSITORY_ID: &'static str = "IDL:I:1.0";

    fn from_object(object: corelane::ObjectRef) -> Self {
        Self(object)
    }

    fn as_object(&self) -> &corelane::ObjectRef {
        &self.0
    }
}

corelane::reference_methods! { IRef }

impl std::fmt::Display for IRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(corelane::Reference::as_object(self), f)
    }
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
impl IRef {
    pub fn f(&self, x: i32) -> Result<(), corelane::SystemException> {
        static OPERATION: corelane::mapping::Operation<'_> = corelane::mapping::Operation::new("f");
        let this = corelane::Reference::as_object(self);
        let local = |servant: &(dyn I + 'static)| servant.f(x);
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        this.send_oneway(&OPERATION, &|e| {
            e.write_i32(x);
            Ok(())
        })
    }

    pub fn g(&self, x: i32) -> Result<(), corelane::SystemException> {
        static OPERATION: corelane::mapping::Operation<'_> = corelane::mapping::Operation::new("g");
        let this = corelane::Reference::as_object(self);
        let local = |servant: &(dyn I + 'static)| servant.g(x);
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        this.run(&OPERATION, &|e| {
            e.write_i32(x);
            Ok(())
        })
    }
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[doc(hidden)]
pub struct ISkeleton(std::sync::Arc<dyn I>);

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
impl ISkeleton {
    #[doc(hidden)]
    pub fn call(
        servant: &dyn I,
        operation: usize,
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        match operation {
            0 => {
                let d = call.arguments();
                let x = corelane::mapping::At::argument(d.read_i32(), "x", d)?;
                servant.g(x)?;
                Ok(())
            }
            1 => {
                let d = call.arguments();
                let x = corelane::mapping::At::argument(d.read_i32(), "x", d)?;
                servant.f(x)?;
                Ok(())
            }
            _ => Err(corelane::SystemException::bad_operation()),
        }
    }
}

impl corelane::mapping::Skeleton for ISkeleton {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:I:1.0"]
    }

    fn dispatch(
        &self,
        operation: &[u8],
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        const NAMES: &[&str] = &["g", "f"];
        const DISPLACEMENTS: &[u16] = &[0];
        static OPERATIONS: corelane::mapping::OperationTable =
            corelane::mapping::OperationTable::new(0, DISPLACEMENTS, NAMES);
        match OPERATIONS.find(operation) {
            Some(operation) => Self::call(&*self.0, operation, call),
            None => Err(corelane::SystemException::bad_operation()),
        }
    }

    fn query_interface<'s>(&'s self, query: &mut corelane::mapping::InterfaceQuery<'s>) {
        query.provide::<_, dyn I>(&self.0, |this| this, |this| this);
    }
}

corelane::describe! { #[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)] pub static I_TYPE for reference IRef = interface("IDL:I:1.0", "I") }
