//! Properties that are sent with calls (IDL's `context` clause), remote and collocated.

use corelane::dynamic::{DynamicServant, ServerRequest};
use corelane::{Any, Context, Orb, Servant, SystemException, SystemExceptionKind, TypeCode};
use corelane_sys::lock::{LockScope, Mutex};

corelane::include_idl!("contexts");

use contexts::*;

struct Teller {
    itself: Mutex<Option<ToldRef>>,
    last: Mutex<String>,
}

fn words() -> Words {
    Context::of_current_call().iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
}

impl Told for Teller {
    fn told_to(&self, depth: i32) -> Result<Words, SystemException> {
        let mut all = words();
        if depth > 0 {
            let itself = self.itself.lock().clone().unwrap();
            assert_eq!(itself.nothing_told()?, Words::new());
            let deeper = Context::new().with("user", &format!("at {depth}"))?.with("other", "x")?;
            all.extend(itself.with_context(&deeper).told_to(depth - 1)?);
            assert!(all.starts_with(&words()));
        }
        Ok(all)
    }

    fn told_or_raised(&self, fails: bool) -> Result<(Words, i32), told::ToldOrRaisedError> {
        let told = words();
        if fails { Err(Refused { told }.into()) } else { Ok((told.clone(), told.len() as i32)) }
    }

    fn nothing_told(&self) -> Result<Words, SystemException> {
        Ok(words())
    }

    fn tell(&self, text: &str) -> Result<(), SystemException> {
        *self.last.lock() = format!("{text} {:?}", Context::of_current_call());
        Ok(())
    }

    fn last_told(&self) -> Result<String, SystemException> {
        Ok(self.last.lock().clone())
    }
}

fn serve() -> (Orb, ToldRef) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    let teller = std::sync::Arc::new(Teller {
        itself: Mutex::new("test reference", LockScope::Orb, None),
        last: Mutex::new("test text", LockScope::Orb, String::new()),
    });
    let id = poa.activate_object(&Told::servant_of(teller.clone())).unwrap();
    poa.manager().activate().unwrap();
    let told = ToldRef::from_object(poa.id_to_reference(&id).unwrap());
    *teller.itself.lock() = Some(told.clone());
    (orb, told)
}

fn both(test: impl Fn(&ToldRef)) {
    let (_server, local) = serve();
    test(&local);
    let client = Orb::new().unwrap();
    test(&client.string_to_reference(&local.to_string()).unwrap());
}

fn properties() -> Context {
    let all = [("user", "ann"), ("site.name", "north"), ("site.zone", ""), ("sitemap", "no"), ("other", "no")];
    all.into_iter().fold(Context::new(), |context, (name, value)| context.with(name, value).unwrap())
}

#[test]
fn properties_of_the_context_clause_arrive() {
    both(|told| {
        assert_eq!(told.told_to(0).unwrap(), Words::new());
        let told = told.with_context(&properties());
        assert_eq!(told.told_to(0).unwrap(), ["site.name", "north", "site.zone", "", "user", "ann"]);
        let (all, length) = told.told_or_raised(false).unwrap();
        assert_eq!((all.len(), length), (10, 10));
        let Err(told::ToldOrRaisedError::Refused(refused)) = told.told_or_raised(true) else { panic!() };
        assert_eq!(refused.told, all);
        assert_eq!(told.nothing_told().unwrap(), Words::new());
        assert_eq!(told.with_context(&Context::new()).told_to(0).unwrap(), Words::new());
    });
    assert!(Context::of_current_call().is_empty());
}

#[test]
fn oneways_carry_properties() {
    both(|told| {
        told.with_context(&properties()).tell("now").unwrap();
        while told.last_told().unwrap() != r#"now {"user": "ann"}"# {}
    });
}

#[test]
fn nested_calls_have_their_own_properties() {
    both(|told| {
        let all = told.with_context(&Context::new().with("user", "me").unwrap()).told_to(2).unwrap();
        assert_eq!(all, ["user", "me", "user", "at 2", "user", "at 1"]);
    });
}

#[test]
fn dynamic_requests_carry_properties() {
    both(|told| {
        let request = || {
            told.as_object()
                .request("told_to")
                .input(Any::new(&0i32).unwrap())
                .returns(TypeCode::sequence(TypeCode::STRING, 0).unwrap())
        };
        let all = |response: corelane::dynamic::DynamicResponse| response.result.extract::<Words>().unwrap();
        let context = Context::new().with("anything", "goes").unwrap();
        assert_eq!(all(request().context(context.clone()).invoke().unwrap()), ["anything", "goes"]);
        assert_eq!(all(request().context(context).send_deferred().unwrap().response().unwrap()), ["anything", "goes"]);
        assert_eq!(all(request().context(Context::new()).invoke().unwrap()), Words::new());
        assert_eq!(all(request().invoke().unwrap()), Words::new());
    });
}

#[test]
fn invalid_properties_are_refused() {
    both(|told| {
        let odd = TypeCode::sequence(TypeCode::STRING, 0).unwrap();
        let odd = Any::with_type(&odd, &vec!["user".to_owned()]).unwrap();
        let request = told.as_object().request("told_to").input(Any::new(&0i32).unwrap()).input(odd);
        match request.invoke() {
            Err(corelane::dynamic::RequestError::System(refused)) => {
                assert_eq!(refused.kind(), SystemExceptionKind::Marshal);
            }
            other => panic!("{other:?}"),
        }
    });
}

struct Dynamic;

impl DynamicServant for Dynamic {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/contexts/Told:1.0"]
    }

    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        let early = request.context().unwrap_err();
        assert_eq!((early.kind(), early.minor() & 0xfff), (SystemExceptionKind::BadInvOrder, 8));
        request.arguments(&[TypeCode::LONG])?;
        let words: Words =
            request.context()?.iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect();
        assert!(request.context().is_err());
        request.reply(&[Any::with_type(&TypeCode::sequence(TypeCode::STRING, 0).unwrap(), &words)?])
    }
}

#[test]
fn dynamic_servants_read_properties() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    let id = poa.activate_object(&Servant::dynamic(Dynamic)).unwrap();
    poa.manager().activate().unwrap();
    let told = ToldRef::from_object(poa.id_to_reference(&id).unwrap()).with_context(&properties());
    assert_eq!(told.told_to(0).unwrap().len(), 6);
}
