//! Checks of references, exceptions, constants, attributes, oneways, inheritance and concurrency.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corelane::{Completion, Octets, SystemException, SystemExceptionKind};

use super::{CheckOutcome, Client, differs, plain, same};
use crate::interop::*;
use crate::suite::servants::{prescribed_constants, prescribed_details};

const SYSTEM_EXCEPTIONS: [&str; 16] = [
    "UNKNOWN",
    "BAD_PARAM",
    "NO_MEMORY",
    "IMP_LIMIT",
    "INV_OBJREF",
    "NO_PERMISSION",
    "INTERNAL",
    "MARSHAL",
    "NO_IMPLEMENT",
    "BAD_OPERATION",
    "NO_RESOURCES",
    "NO_RESPONSE",
    "BAD_INV_ORDER",
    "DATA_CONVERSION",
    "OBJECT_NOT_EXIST",
    "INV_POLICY",
];

fn nothing() -> CheckOutcome {
    Ok(String::new())
}

fn some<R>(reference: Option<R>) -> Result<R, SystemException> {
    reference.ok_or_else(|| {
        SystemException::new(SystemExceptionKind::InvObjref, 0, Completion::Yes).with_message("the reference is nil")
    })
}

#[derive(Debug)]
enum Raised {
    Plain,
    Reason(Reason),
    Details(Details),
    System(SystemException),
}

macro_rules! raised_is {
    ($($module:ident::$error:ident)*) => { $(impl From<$module::$error> for Raised {
        fn from(error: $module::$error) -> Self {
            match error {
                $module::$error::Plain(_) => Raised::Plain,
                $module::$error::Reason(exception) => Raised::Reason(exception),
                $module::$error::Details(exception) => Raised::Details(exception),
                $module::$error::System(exception) => Raised::System(exception),
            }
        }
    })* };
}
raised_is!(failures::FailError objects::CallBackError);

impl Client {
    pub(super) fn references(&self) {
        let s = &self.suite;
        let mine = Some(self.mine.as_object());
        let theirs = match s.server_bouncer().and_then(some) {
            Ok(theirs) => theirs,
            Err(exception) => return self.report.check("server_bouncer", || Err(exception)),
        };
        self.report.check("echo_bouncer", || {
            let (result, inout, out) = s.echo_bouncer(Some(&self.mine), Some(&theirs))?;
            let trouble = same("result", mine, plain(result.as_ref()))
                + &same("inout", mine, plain(inout.as_ref()))
                + &same("out", Some(theirs.as_object()), plain(out.as_ref()));
            let (result, inout, out) = s.echo_bouncer(Some(&theirs), None)?;
            Ok(trouble
                + &same("result", Some(theirs.as_object()), plain(result.as_ref()))
                + &same("inout", Some(theirs.as_object()), plain(inout.as_ref()))
                + &same("out", None, plain(out.as_ref())))
        });
        self.report.check("echo_object", || {
            let (result, inout, out) = s.echo_object(mine, Some(theirs.as_object()))?;
            let narrowed = BouncerRef::narrow(&some(result)?)?;
            let wrong = BaseRef::narrow(&some(out.clone())?)?;
            Ok(same("result", mine, plain(narrowed.as_ref()))
                + &same("inout", mine, inout.as_ref())
                + &same("out", Some(theirs.as_object()), out.as_ref())
                + if wrong.is_some() { "a Bouncer was narrowed to Base" } else { "" })
        });
        self.report.check("echo_bouncer_seq", || {
            let (result, inout, out) =
                s.echo_bouncer_seq(&[Some(self.mine.clone()), None, Some(theirs.clone())], &[])?;
            if (result.len(), inout.len(), out.len()) != (3, 3, 0) {
                return Ok("lengths".into());
            }
            Ok(same("result[0]", mine, plain(result[0].as_ref()))
                + &same("result[1]", None, plain(result[1].as_ref()))
                + &same("inout[2]", Some(theirs.as_object()), plain(inout[2].as_ref())))
        });
        self.report.check("echo_link", || {
            let suite = s.as_object();
            let a = Link { label: "one".into(), target: Some(self.mine.clone()), anything: Some(suite.clone()) };
            let b = Link { label: "two".into(), target: None, anything: None };
            let (result, inout, out) = s.echo_link(&a, &b)?;
            Ok(differs("label", &a.label, &result.label)
                + &same("target", mine, plain(result.target.as_ref()))
                + &same("anything", Some(suite), inout.anything.as_ref())
                + &differs("label", &b.label, &out.label)
                + &same("target", None, plain(out.target.as_ref())))
        });
        self.report.check("call_back", || match s.call_back(Some(&self.mine), Failure::FailNot, 41, "none") {
            Ok(got) => Ok(differs("result", &41, &got)),
            Err(error) => Ok(format!("got {error:?}")),
        });
        self.report.check("send_back", || {
            let values: Vec<i32> = (0..20).collect();
            s.send_back(Some(&self.mine), &values)?;
            Ok(differs("values", &values, &self.servant.wait_for(20, Duration::from_secs(60))))
        });
        self.report.check("bounce", || Ok(differs("result", &9, &theirs.bounce(Some(&self.mine), 9)?)));
    }

    fn exceptions(&self, name: &str, fail: impl Fn(Failure, i32, &str) -> Result<i32, Raised>) {
        let check =
            |kind: &str, work: &dyn Fn() -> Result<i32, Raised>, judge: &dyn Fn(Result<i32, Raised>) -> String| {
                self.report.check(&format!("{name}({kind})"), || match work() {
                    Err(Raised::System(exception)) => Err(exception),
                    other => Ok(judge(other)),
                });
            };
        let unexpected = |expected: &str, got: &Result<i32, Raised>| format!("expected {expected} got {got:?}");
        check("FAIL_NOT", &|| fail(Failure::FailNot, 7, ""), &|got| match got {
            Ok(7) => String::new(),
            other => unexpected("7", &other),
        });
        check("FAIL_PLAIN", &|| fail(Failure::FailPlain, 1, "x"), &|got| match got {
            Err(Raised::Plain) => String::new(),
            other => unexpected("Plain", &other),
        });
        check("FAIL_REASON", &|| fail(Failure::FailReason, -5, "no luck"), &|got| match got {
            Err(Raised::Reason(got)) => differs("members", &Reason { code: -5, why: "no luck".into() }, &got),
            other => unexpected("Reason", &other),
        });
        check("FAIL_DETAILS", &|| fail(Failure::FailDetails, 77, "long story"), &|got| match got {
            Err(Raised::Details(got)) => differs("members", &prescribed_details(77, "long story"), &got),
            other => unexpected("Details", &other),
        });
    }

    pub(super) fn failures(&self) {
        let s = &self.suite;
        self.exceptions("fail", |kind, code, text| Ok(s.fail(kind, code, text)?));
        self.exceptions("call_back", |kind, code, text| Ok(s.call_back(Some(&self.mine), kind, code, text)?));
        for name in SYSTEM_EXCEPTIONS {
            self.report.check(&format!("fail_system({name})"), || {
                let cases = [
                    (0, 0x1234_5678, Completion::Yes),
                    (1, 0x4f4d_0001, Completion::No),
                    (2, 0x1234_567a, Completion::Maybe),
                ];
                for (number, minor, completed) in cases {
                    let Err(got) = s.fail_system(name, minor, number) else {
                        return Ok("expected an exception got a result".into());
                    };
                    let expected = (SystemExceptionKind::from_name(name.as_bytes()), minor, completed);
                    let trouble = differs("exception", &expected, &(Some(got.kind()), got.minor(), got.completed()));
                    if !trouble.is_empty() {
                        return Ok(trouble);
                    }
                }
                nothing()
            });
        }
        self.report.check("fail_system(none)", || s.fail_system("none", 0, 0).and_then(|()| nothing()));
        self.report.check("gone", || match some(s.gone()?)?.base_name() {
            Err(got) if got.kind() == SystemExceptionKind::ObjectNotExist => nothing(),
            other => Ok(format!("expected OBJECT_NOT_EXIST got {other:?}")),
        });
    }

    pub(super) fn the_rest(&self) {
        let s = &self.suite;
        self.report
            .check("server_constants", || Ok(differs("constants", &prescribed_constants(), &s.server_constants()?)));
        if self.options.wide_characters {
            let expected = (A_WCHAR, A_WSTRING.to_owned());
            self.report.check("wide_constants", || Ok(differs("constants", &expected, &s.wide_constants()?)));
        }
        self.report.check("attributes", || {
            if s.implementation()?.is_empty() {
                return Ok("no implementation named".into());
            }
            let (marks, title) = (vec![1, -1, 0], "a title".to_owned());
            let origin = s.origin()?;
            s.set_level(-17)?;
            s.set_title(&title)?;
            s.set_marks(&marks)?;
            s.set_paint(Colour::Blue)?;
            Ok(differs("origin", &Point { x: 0, y: -1 }, &origin)
                + &differs("level", &-17, &s.level()?)
                + &differs("title", &title, &s.title()?)
                + &differs("marks", &marks, &s.marks()?)
                + &differs("paint", &Colour::Blue, &s.paint()?))
        });
        self.report.check("note", || {
            s.take_notes()?;
            for i in 0..200 {
                s.note(i * 1000, "a note")?;
            }
            let seen = s.await_notes(200, 10_000)?;
            Ok(differs("count", &200, &seen) + &differs("taken", &(200, 19_900_000), &s.take_notes()?))
        });
        self.report.check("inheritance", || self.inheritance());
        self.report.check("bench", || self.bench());
    }

    fn inheritance(&self) -> CheckOutcome {
        let base = some(self.suite.server_bottom()?)?;
        let object = base.as_object();
        let Some(bottom) = BottomRef::narrow(object)? else { return Ok("the base does not narrow to Bottom".into()) };
        let Some(right) = RightRef::narrow(object)? else { return Ok("the base does not narrow to Right".into()) };
        if BouncerRef::narrow(object)?.is_some() {
            return Ok("the base narrows to Bouncer".into());
        }
        let turned = |error: right::RightNameError| match error {
            right::RightNameError::Turned(exception) => Ok(exception.angle),
            right::RightNameError::System(exception) => Err(exception),
        };
        let right_name = match right.right_name(0) {
            Ok(name) => name,
            Err(error) => format!("Turned({})", turned(error)?),
        };
        let names = [base.base_name()?, bottom.left_name()?, right_name, bottom.bottom_name()?, bottom.base_name()?];
        right.set_shared(99)?;
        let angle = match bottom.right_name(45) {
            Ok(_) => 0,
            Err(error) => turned(error)?,
        };
        let copies = bottom.copies(3)?;
        if copies.len() != 3 {
            return Ok("copies".into());
        }
        let is_left = object.is_a("IDL:corelane/Interop/Left:1.0")?;
        let is_nothing = object.is_a("IDL:corelane/Interop/Nothing:1.0")?;
        Ok(differs("names", &"base left right bottom base".to_owned(), &names.join(" "))
            + &differs("shared", &99, &bottom.shared()?)
            + &differs("angle", &45, &angle)
            + &same("copy", Some(object), plain(copies[2].as_ref()))
            + &differs("is_a, non_existent", &(true, false, false), &(is_left, is_nothing, object.non_existent()?)))
    }

    fn bench(&self) -> CheckOutcome {
        let bench = some(self.suite.server_bench()?)?;
        let random = &mut self.random(2);
        let longs: LongSeq = random.sequence(40, crate::suite::values::Sample::of);
        let octets: Octets = random.octets(300);
        let point = Point { x: 1, y: 2 };
        bench.nothing()?;
        bench.bench_oneway(1)?;
        Ok(differs("longs", &longs, &bench.bench_longs(&longs)?)
            + &differs("octets", &octets, &bench.bench_octets(&octets)?)
            + &differs("string", &"some text".to_owned(), &bench.bench_string("some text")?)
            + &differs("octet", &200, &bench.bench_octet(200)?)
            + &differs("long", &-3, &bench.bench_long(-3)?)
            + &differs("point", &point, &bench.bench_point(&point)?))
    }

    fn one_caller(&self, theirs: &BouncerRef, number: i32) -> CheckOutcome {
        let s = &self.suite;
        for i in 0..5 {
            s.sleep(self.options.slow_call_ms)?;
            let value = number * 1000 + i;
            let (result, _, _) = s.echo_long(value, i)?;
            let longs: LongSeq = (value..value + 1000).collect();
            let bounced = theirs.bounce(Some(&self.mine), 6)?;
            let (echoed, _, _) = s.echo_long_seq(&longs, &[])?;
            let trouble = differs("echo_long", &value, &result)
                + &differs("bounce", &6, &bounced)
                + &differs("echo_long_seq", &longs, &echoed);
            if !trouble.is_empty() {
                return Ok(trouble);
            }
        }
        nothing()
    }

    pub(super) fn concurrent(&self) {
        let theirs = match self.suite.server_bouncer().and_then(some) {
            Ok(theirs) => theirs,
            Err(exception) => return self.report.check("server_bouncer", || Err(exception)),
        };
        let (threads, meet) = (self.options.threads, self.options.min_callers_at_once);
        let began = Instant::now();
        thread::scope(|scope| {
            for (number, name) in (0..threads).map(|number| (number, format!("thread {number}"))) {
                let theirs = &theirs;
                let work = move || self.one_caller(theirs, i32::try_from(number).unwrap_or_default());
                scope.spawn(move || self.report.check(&name, work));
            }
        });
        println!("took {} ms with {threads} threads", began.elapsed().as_millis());
        if meet == 0 {
            return;
        }
        self.report.check("meet", || {
            let most = AtomicU32::new(0);
            thread::scope(|scope| {
                for _ in 0..meet {
                    // A failed call makes the number of callers too small, and the check fails.
                    scope.spawn(|| self.suite.meet(meet, 20_000).map(|seen| most.fetch_max(seen, Ordering::SeqCst)));
                }
            });
            Ok(differs("callers inside at once", &meet, &most.into_inner()))
        });
    }
}
