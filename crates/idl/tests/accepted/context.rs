// Made by the IDL compiler of Corelane from context.idl. Changes here are lost.

/// Operations with a context: what they ask for follows the arguments.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub trait Placed: Send + Sync + 'static {
    fn locate(&self, a: i32) -> Result<(), corelane::SystemException>;
    fn count(&self) -> Result<i32, corelane::SystemException>;
    fn tell(&self, text: &str) -> Result<(), corelane::SystemException>;

    /// A servant that runs these operations, to be activated.
    fn servant(this: Self) -> corelane::Servant
    where
        Self: Sized,
    {
        Placed::servant_of(std::sync::Arc::new(this))
    }

    /// The same for an object that others keep too.
    fn servant_of(this: std::sync::Arc<Self>) -> corelane::Servant
    where
        Self: Sized,
    {
        corelane::Servant::new(PlacedSkeleton(this))
    }
}

/// A reference to a [`Placed`].
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlacedRef(corelane::ObjectRef);

impl corelane::Reference for PlacedRef {
    const REPOSITORY_ID: &'static str = "IDL:Placed:1.0";

    fn from_object(object: corelane::ObjectRef) -> Self {
        Self(object)
    }

    fn as_object(&self) -> &corelane::ObjectRef {
        &self.0
    }
}

corelane::reference_methods! { PlacedRef }

impl std::fmt::Display for PlacedRef {
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
impl PlacedRef {
    pub fn locate(&self, a: i32) -> Result<(), corelane::SystemException> {
        static OPERATION: corelane::mapping::Operation<'_> =
            corelane::mapping::Operation::new("locate");
        const CONTEXT: &[&str] = &["a*", "b.c"];
        let this = corelane::Reference::as_object(self);
        let context = this.context_for(CONTEXT);
        let local = |servant: &(dyn Placed + 'static)| {
            let _context = context.enter();
            servant.locate(a)
        };
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        this.run(&OPERATION, &|e| {
            e.write_i32(a);
            context.write(e)
        })
    }

    pub fn count(&self) -> Result<i32, corelane::SystemException> {
        static OPERATION: corelane::mapping::Operation<'_> =
            corelane::mapping::Operation::new("count");
        const CONTEXT: &[&str] = &["x"];
        let this = corelane::Reference::as_object(self);
        let context = this.context_for(CONTEXT);
        let local = |servant: &(dyn Placed + 'static)| {
            let _context = context.enter();
            servant.count()
        };
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        let results = |d: &mut corelane::mapping::Decoder<'_>| {
            let result = corelane::mapping::At::member(d.read_i32(), "result", d)?;
            Ok(result)
        };
        this.call(&OPERATION, results, &|e| context.write(e))
    }

    pub fn tell(&self, text: &str) -> Result<(), corelane::SystemException> {
        static OPERATION: corelane::mapping::Operation<'_> =
            corelane::mapping::Operation::new("tell");
        const CONTEXT: &[&str] = &["y"];
        let this = corelane::Reference::as_object(self);
        let context = this.context_for(CONTEXT);
        let local = |servant: &(dyn Placed + 'static)| {
            let _context = context.enter();
            servant.tell(text)
        };
        if let Some(servant) = this.direct() {
            return local(servant);
        }
        if let Some(outcome) = this.collocated(&OPERATION, local) {
            return outcome;
        }
        this.send_oneway(&OPERATION, &|e| {
            corelane::mapping::At::member(e.write_str(text), "text", e)?;
            context.write(e)
        })
    }
}

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::pedantic, clippy::type_complexity, clippy::upper_case_acronyms)]
#[doc(hidden)]
pub struct PlacedSkeleton(std::sync::Arc<dyn Placed>);

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::disallowed_names, clippy::len_without_is_empty)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
impl PlacedSkeleton {
    #[doc(hidden)]
    pub fn call(
        servant: &dyn Placed,
        operation: usize,
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        match operation {
            0 => {
                let d = call.arguments();
                let _context = corelane::Context::begin(d)?;
                let result = servant.count()?;
                let e = call.reply();
                e.write_i32(result);
                Ok(())
            }
            1 => {
                let d = call.arguments();
                let a = corelane::mapping::At::argument(d.read_i32(), "a", d)?;
                let _context = corelane::Context::begin(d)?;
                servant.locate(a)?;
                Ok(())
            }
            2 => {
                let d = call.arguments();
                let text = corelane::mapping::At::argument(d.read_str(), "text", d)?;
                let _context = corelane::Context::begin(d)?;
                servant.tell(text)?;
                Ok(())
            }
            _ => Err(corelane::SystemException::bad_operation()),
        }
    }
}

impl corelane::mapping::Skeleton for PlacedSkeleton {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:Placed:1.0"]
    }

    fn dispatch(
        &self,
        operation: &[u8],
        call: &mut corelane::mapping::ServerCall<'_>,
    ) -> Result<(), corelane::SystemException> {
        const NAMES: &[&str] = &["count", "locate", "tell"];
        const DISPLACEMENTS: &[u16] = &[1];
        static OPERATIONS: corelane::mapping::OperationTable =
            corelane::mapping::OperationTable::new(0, DISPLACEMENTS, NAMES);
        match OPERATIONS.find(operation) {
            Some(operation) => Self::call(&*self.0, operation, call),
            None => Err(corelane::SystemException::bad_operation()),
        }
    }

    fn query_interface<'s>(&'s self, query: &mut corelane::mapping::InterfaceQuery<'s>) {
        query.provide::<_, dyn Placed>(&self.0, |this| this, |this| this);
    }
}

corelane::describe! { #[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)] pub static PLACED_TYPE for reference PlacedRef = interface("IDL:Placed:1.0", "Placed") }
