// values --ior FILE [-ORB...]
//   serves InteropValues::ValueSuite until its shutdown operation, at most 240 s
// values --call REFERENCE [-ORB...]
//   calls the suite at REFERENCE, and prints `ok NAME` or `FAIL NAME ...` for each check, and finally
//   `N passed, M failed`

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "values.hh"

namespace V = InteropValues;

// ---- values --------------------------------------------------------------------------------------------------------

struct Node_i : virtual OBV_InteropValues::Node, virtual CORBA::DefaultValueRefCountBase {};

struct Base_i : virtual OBV_InteropValues::Base, virtual CORBA::DefaultValueRefCountBase {};

struct Extended_i : virtual OBV_InteropValues::Extended, virtual CORBA::DefaultValueRefCountBase {};

struct Heavier_i : virtual OBV_InteropValues::Heavier, virtual CORBA::DefaultValueRefCountBase {};

struct Square_i : virtual OBV_InteropValues::Square, virtual CORBA::DefaultValueRefCountBase {
  CORBA::Double area() override { return side() * side(); }
};

struct Note_i : virtual OBV_InteropValues::Note, virtual CORBA::DefaultValueRefCountBase {
  char* describe() override { return CORBA::string_dup(text()); }
};

template <class Made>
struct Factory : virtual CORBA::ValueFactoryBase {
  CORBA::ValueBase* create_for_unmarshal() override { return new Made; }
};

static void register_factories(CORBA::ORB_ptr orb) {
  auto add = [orb](const char* id, CORBA::ValueFactoryBase* factory) {
    CORBA::ValueFactory old = orb->register_value_factory(id, factory);
    if (old) old->_remove_ref();
    factory->_remove_ref();
  };
  add("IDL:corelane/InteropValues/Node:1.0", new Factory<Node_i>);
  add("IDL:corelane/InteropValues/Base:1.0", new Factory<Base_i>);
  add("IDL:corelane/InteropValues/Extended:1.0", new Factory<Extended_i>);
  add("IDL:corelane/InteropValues/Heavier:1.0", new Factory<Heavier_i>);
  add("IDL:corelane/InteropValues/Square:1.0", new Factory<Square_i>);
  add("IDL:corelane/InteropValues/Note:1.0", new Factory<Note_i>);
}

// Describes the graph that is reachable from a node.
static std::string form(V::Node* start) {
  std::vector<V::Node*> met;
  std::map<V::Node*, size_t> numbers;
  std::ostringstream text;
  auto number = [&](V::Node* node) {
    if (!node) return std::string("-");
    auto found = numbers.find(node);
    if (found == numbers.end()) {
      found = numbers.emplace(node, met.size()).first;
      met.push_back(node);
    }
    return std::to_string(found->second);
  };
  number(start);
  for (size_t at = 0; at < met.size(); ++at) {
    V::Node* node = met[at];
    std::string left = number(node->left()), right = number(node->right());
    text << node->id() << ":" << node->label() << "(" << left << "," << right << ")";
  }
  return text.str();
}

static std::string form(V::Base* base) {
  if (!base) return "-";
  std::ostringstream text;
  text << int(base->tag()) << " " << base->number() << " ";
  for (const CORBA::WChar* c = base->name(); *c; ++c) text << std::hex << unsigned(*c) << std::dec << ",";
  if (auto* extended = dynamic_cast<V::Extended*>(base)) {
    text << " extended " << extended->extra() << " " << extended->last() << " " << form(extended->graph());
  } else if (auto* heavier = dynamic_cast<V::Heavier*>(base)) {
    text << " heavier " << heavier->weight();
  }
  return text.str();
}

// ---- servant -------------------------------------------------------------------------------------------------------

// Rotates the parameters: c becomes b, b becomes a, a is the result. Each parameter owns a reference to its
// value.
template <class T>
static T* pass(T* a, T*& b, T*& c) {
  c = b;
  CORBA::add_ref(a);
  b = a;
  CORBA::add_ref(a);
  return a;
}

struct Thing_i : POA_InteropValues::Thing {
  char* describe() override { return CORBA::string_dup("thing"); }
};

struct Suite_i : POA_InteropValues::ValueSuite {
  std::function<void()> stop;
  V::Thing_var thing;

  V::Money echo_money(const V::Money& a, V::Money& b, V::Money_out c) override {
    c = b;
    b = a;
    return a;
  }
  V::Widest echo_widest(const V::Widest& a, V::Widest& b, V::Widest_out c) override {
    c = b;
    b = a;
    return a;
  }
  V::Node* echo_node(V::Node* a, V::Node*& b, V::Node_out c) override { return pass<V::Node>(a, b, c.ptr()); }
  V::NodeSeq* echo_nodes(const V::NodeSeq& a, V::NodeSeq& b, V::NodeSeq_out c) override {
    c = new V::NodeSeq(b);
    b = a;
    return new V::NodeSeq(a);
  }
  V::Base* echo_base(V::Base* a, V::Base*& b, V::Base_out c) override { return pass<V::Base>(a, b, c.ptr()); }
  V::Title* echo_title(V::Title* a, V::Title*& b, V::Title_out c) override { return pass<V::Title>(a, b, c.ptr()); }
  V::Words* echo_words(V::Words* a, V::Words*& b, V::Words_out c) override { return pass<V::Words>(a, b, c.ptr()); }
  V::Described_ptr echo_described(V::Described_ptr a, V::Described_ptr& b, V::Described_out c) override {
    c = b;
    b = V::Described::_duplicate(a);
    return V::Described::_duplicate(a);
  }
  template <class T>
  static T* copy(const T& a, T& b, T*& c) {
    c = new T(b);
    b = a;
    return new T(a);
  }
  V::Choice* echo_choice(const V::Choice& a, V::Choice& b, V::Choice_out c) override { return copy(a, b, c.ptr()); }
  V::OnKey* echo_on_key(const V::OnKey& a, V::OnKey& b, V::OnKey_out c) override { return copy(a, b, c.ptr()); }
  V::OnCard* echo_on_card(const V::OnCard& a, V::OnCard& b, V::OnCard_out c) override { return copy(a, b, c.ptr()); }
  V::Folder* echo_folder(const V::Folder& a, V::Folder& b, V::Folder_out c) override { return copy(a, b, c.ptr()); }
  V::Pair_slice* echo_pair(const V::Pair a, V::Pair b, V::Pair_out c) override {
    c = V::Pair_dup(b);
    V::Pair_copy(b, a);
    return V::Pair_dup(a);
  }
  V::Shape* echo_shape(V::Shape* a, V::Shape*& b, V::Shape_out c) override { return pass<V::Shape>(a, b, c.ptr()); }
  CORBA::ValueBase* echo_value(CORBA::ValueBase* a, CORBA::ValueBase*& b, CORBA::ValueBase_out c) override {
    return pass<CORBA::ValueBase>(a, b, c.ptr());
  }
  CORBA::Any* echo_any(const CORBA::Any& a, CORBA::Any& b, CORBA::Any_OUT_arg c) override {
    c = new CORBA::Any(b);
    b = a;
    return new CORBA::Any(a);
  }
  CORBA::Any* repack(const CORBA::Any& any) override {
    V::Node* node;
    CORBA::Any* made = new CORBA::Any;
    if (any >>= node) *made <<= node;
    return made;
  }
  char* walk(V::Node* start) override {
    std::ostringstream text;
    std::map<V::Node*, bool> met;
    std::function<void(V::Node*)> go = [&](V::Node* node) {
      if (!node || met[node]) return;
      met[node] = true;
      text << node->id() << " ";
      go(node->left());
      go(node->right());
    };
    go(start);
    return CORBA::string_dup(text.str().c_str());
  }
  V::Thing_ptr server_thing() override { return V::Thing::_duplicate(thing); }
  void shutdown() override { stop(); }
};

static int serve(CORBA::ORB_ptr orb, const std::string& file) {
  std::mutex lock;
  std::condition_variable changed;
  bool stopping = false;
  CORBA::Object_var found = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var poa = PortableServer::POA::_narrow(found);
  auto* thing = new Thing_i;
  auto* suite = new Suite_i;
  suite->stop = [&] {
    std::lock_guard<std::mutex> guard(lock);
    stopping = true;
    changed.notify_all();
  };
  PortableServer::ObjectId_var thing_id = poa->activate_object(thing);
  PortableServer::ObjectId_var id = poa->activate_object(suite);
  CORBA::Object_var reference = poa->id_to_reference(thing_id);
  suite->thing = V::Thing::_narrow(reference);
  reference = poa->id_to_reference(id);
  PortableServer::POAManager_var manager = poa->the_POAManager();
  manager->activate();
  CORBA::String_var ior = orb->object_to_string(reference);
  { std::ofstream(file + ".part") << ior.in() << "\n"; }
  if (std::rename((file + ".part").c_str(), file.c_str()) != 0) { std::perror(file.c_str()); return 1; }
  std::cout << "ready" << std::endl;
  std::unique_lock<std::mutex> guard(lock);
  changed.wait_for(guard, std::chrono::seconds(240), [&] { return stopping; });
  return 0;
}

// ---- client --------------------------------------------------------------------------------------------------------

static std::mt19937 generator(20);

static unsigned below(unsigned limit) { return generator() % limit; }

// Returns a graph whose nodes have random references to each other, or nil references.
static V::Node* graph() {
  unsigned count = 1 + below(12);
  std::vector<V::Node*> nodes;
  for (unsigned at = 0; at < count; ++at) {
    auto* node = new Node_i;
    node->id(CORBA::Long(generator()));
    node->label(("node " + std::to_string(at)).c_str());
    nodes.push_back(node);
  }
  for (auto* node : nodes) {
    node->left(below(4) ? nodes[below(count)] : nullptr);
    node->right(below(4) ? nodes[below(count)] : nullptr);
  }
  return nodes[0];
}

static V::Base* base(unsigned kind) {
  static const CORBA::WChar name[] = {'n', 0xe4, 0x20ac, 0};
  auto fill = [](V::Base* made) {
    made->tag(CORBA::Octet(generator()));
    made->number(CORBA::Long(generator()));
    made->name(name);
  };
  if (kind == 0) {
    auto* made = new Base_i;
    fill(made);
    return made;
  }
  if (kind == 2) {
    auto* made = new Heavier_i;
    fill(made);
    made->weight(CORBA::Long(generator()));
    return made;
  }
  auto* made = new Extended_i;
  fill(made);
  made->extra(below(1000) / 8.0);
  made->graph(below(5) ? graph() : nullptr);
  made->last(CORBA::Short(generator()));
  return made;
}

static unsigned passed = 0, failed = 0;

static void check(const char* name, const std::function<std::string()>& run) {
  std::string trouble;
  for (int round = 0; round < 20 && trouble.empty(); ++round) {
    try {
      trouble = run();
    } catch (const CORBA::SystemException& exception) {
      // omniORB has no names for the minor codes of other vendors.
      const char* minor = exception.NP_minorString();
      trouble = std::string(exception._name()) + " " + (minor ? minor : std::to_string(exception.minor()));
    } catch (const CORBA::Exception& exception) {
      trouble = exception._name();
    } catch (const std::runtime_error& error) {
      trouble = error.what();
    }
  }
  std::cout << (trouble.empty() ? "ok " : "FAIL ") << name << (trouble.empty() ? "" : " ") << trouble << std::endl;
  ++(trouble.empty() ? passed : failed);
}

// Fails for a value that cannot be shown, because it would have one text on both sides.
static std::string wrong(const char* what) { throw std::runtime_error(what); }

static std::string differs(const std::string& expected, const std::string& found) {
  return expected == found ? "" : "expected " + expected + ", found " + found;
}

// Checks a value in an any, and in an any in an any, as result, inout and out parameter.
static std::string in_any(V::ValueSuite_ptr suite, const CORBA::Any& a, const std::function<std::string(const CORBA::Any&)>& show) {
  CORBA::Any within, nested;
  within <<= a;
  nested <<= within;
  CORBA::Any inout = nested;
  CORBA::Any_var out, result = suite->echo_any(a, inout, out.out());
  const CORBA::Any *outer, *inner;
  if (!(out.in() >>= outer) || !(*outer >>= inner)) return wrong("no any in any");
  std::string expected = show(a);
  return differs(expected, show(result.in())) + differs(expected, show(inout)) + differs(expected, show(*inner));
}

static std::string form(const V::Choice& choice) {
  switch (choice._d()) {
    case 0: return "leaf " + form(choice.leaf());
    case 7: return std::string("heading ") + (choice.heading() ? choice.heading()->_value() : "-");
    default: return "number " + std::to_string(choice._d()) + " " + std::to_string(choice.number());
  }
}

static std::string form(const V::OnKey& on) {
  switch (on._d()) {
    case -7: return std::string("text ") + on.text();
    case 7: return "leaf " + form(on.leaf());
    default: return "none " + std::to_string(on._d());
  }
}

static std::string form(const V::OnCard& on) {
  CORBA::Long content = 0;
  switch (on._d()) {
    case V::CLUBS: return "amount " + std::to_string(on.amount());
    case V::SPADES: return (on.content() >>= content) ? "content " + std::to_string(content) : wrong("another content");
    default: return "none " + std::to_string(on._d());
  }
}

static V::Choice choice() {
  V::Choice made;
  switch (below(3)) {
    case 0: made.leaf(graph()); break;
    case 1: made.heading(new V::Title("heading")); break;
    default: made.number(-5); made._d(42); break;
  }
  return made;
}

static V::OnKey on_key() {
  V::OnKey made;
  switch (below(3)) {
    case 0: made.text("text"); break;
    case 1: made.leaf(graph()); break;
    default: made._default(); made._d(9); break;
  }
  return made;
}

static V::OnCard on_card() {
  V::OnCard made;
  CORBA::Any content;
  content <<= CORBA::Long(generator());
  switch (below(3)) {
    case 0: made.amount(-12.5); break;
    case 1: made.content(content); break;
    default: made._default(); break;
  }
  return made;
}

// Checks each type in any: compares the inserted value with the text of the received value.
static void anys(V::ValueSuite_ptr suite) {
  auto fixed = [](CORBA::UShort digits, CORBA::UShort scale) {
    return [=](const CORBA::Any& any) {
      CORBA::Fixed got;
      if (!(any >>= CORBA::Any::to_fixed(got, digits, scale))) return wrong("no fixed");
      return std::string(CORBA::String_var(got.NP_asString()));
    };
  };
  check("echo_any(Money)", [&] {
    CORBA::Any a;
    CORBA::Fixed value((std::to_string(int(generator()) / 100000) + ".25").c_str());
    a <<= CORBA::Any::from_fixed(value, 9, 4);
    return in_any(suite, a, fixed(9, 4));
  });
  check("echo_any(Widest)", [&] {
    CORBA::Any a;
    CORBA::Fixed value("-123456789012345678901.0123456789");
    a <<= CORBA::Any::from_fixed(value, 31, 10);
    return in_any(suite, a, fixed(31, 10));
  });
  check("echo_any(Title)", [&] {
    CORBA::Any a;
    V::Title_var title = new V::Title("a title");
    a <<= title.in();
    return in_any(suite, a, [](const CORBA::Any& any) {
      V::Title* got;
      return (any >>= got) ? std::string(got->_value()) : wrong("no title");
    });
  });
  check("echo_any(Words)", [&] {
    CORBA::Any a;
    V::StringSeq words;
    words.length(2);
    words[0] = "one";
    words[1] = "two";
    V::Words_var boxed = new V::Words(words);
    a <<= boxed.in();
    return in_any(suite, a, [](const CORBA::Any& any) {
      V::Words* got;
      if (!(any >>= got)) return wrong("no words");
      const V::StringSeq& list = got->_value();
      return list.length() == 2 ? std::string(list[0]) + " " + std::string(list[1]) : wrong("another length");
    });
  });
  auto described = [](const CORBA::Any& any) {
    V::Described_ptr got;
    if (!(any >>= got)) return wrong("nothing described");
    return std::string(CORBA::String_var(got->describe()));
  };
  check("echo_any(Described)", [&] {
    CORBA::Any a;
    V::Thing_var thing = suite->server_thing();
    V::Described_ptr object = thing.in();
    a <<= object;
    return differs("thing", described(a)) + in_any(suite, a, described);
  });
  check("echo_any(Note)", [&] {
    CORBA::Any a;
    V::Note_var note = new Note_i;
    note->text("a note");
    V::Described_ptr value = note.in();
    a <<= value;
    return differs("a note", described(a)) + in_any(suite, a, described);
  });
  check("echo_any(Thing)", [&] {
    CORBA::Any a;
    V::Thing_var thing = suite->server_thing();
    a <<= thing.in();
    return in_any(suite, a, [](const CORBA::Any& any) {
      V::Thing_ptr got;
      return (any >>= got) ? std::string(CORBA::String_var(got->describe())) : wrong("no thing");
    });
  });
  check("echo_any(Shape)", [&] {
    CORBA::Any a;
    V::Square_var square = new Square_i;
    square->side(1.5);
    a <<= square.in();
    return in_any(suite, a, [](const CORBA::Any& any) {
      V::Shape* got;
      V::Square* whole;
      if ((any >>= whole)) return std::to_string(whole->area());
      return (any >>= got) ? std::to_string(got->area()) : wrong("no shape");
    });
  });
  check("echo_any(Base)", [&] {
    CORBA::Any a;
    V::Base_var value = base(below(3));
    a <<= value.in();
    return in_any(suite, a, [](const CORBA::Any& any) {
      V::Base* got;
      V::Extended* extended;
      V::Heavier* heavier;
      if ((any >>= extended)) return form(extended);
      if ((any >>= heavier)) return form(heavier);
      return (any >>= got) ? form(got) : wrong("no base");
    });
  });
  check("echo_any(NodeSeq)", [&] {
    CORBA::Any a;
    V::NodeSeq list;
    V::Node* shared = graph();
    list.length(3);
    for (unsigned at = 0; at < 3; ++at) list[at] = at == 1 ? nullptr : (CORBA::add_ref(shared), shared);
    a <<= list;
    return in_any(suite, a, [](const CORBA::Any& any) {
      const V::NodeSeq* got;
      if (!(any >>= got) || got->length() != 3) return wrong("no nodes");
      V::Node *first = (*got)[0], *second = (*got)[1], *last = (*got)[2];
      return first == last && !second ? form(first) : wrong("not shared");
    });
  });
  check("echo_any(Pair)", [&] {
    CORBA::Any a;
    V::Pair pair;
    V::Node* node = graph();
    pair[0] = (CORBA::add_ref(node), node);
    a <<= V::Pair_forany(pair, false);
    return in_any(suite, a, [](const CORBA::Any& any) {
      V::Pair_forany got;
      if (!(any >>= got)) return wrong("no pair");
      V::Node *first = got[0].in(), *second = got[1].in();
      return second ? wrong("not null") : form(first);
    });
  });
  check("echo_any(Choice)", [&] {
    CORBA::Any a;
    a <<= choice();
    return in_any(suite, a, [](const CORBA::Any& any) {
      const V::Choice* got;
      return (any >>= got) ? form(*got) : wrong("no choice");
    });
  });
  check("echo_any(OnKey)", [&] {
    CORBA::Any a;
    a <<= on_key();
    return in_any(suite, a, [](const CORBA::Any& any) {
      const V::OnKey* got;
      return (any >>= got) ? form(*got) : wrong("no union");
    });
  });
  check("echo_any(OnCard)", [&] {
    CORBA::Any a;
    a <<= on_card();
    return in_any(suite, a, [](const CORBA::Any& any) {
      const V::OnCard* got;
      return (any >>= got) ? form(*got) : wrong("no union");
    });
  });
}

static int call(CORBA::ORB_ptr orb, const char* reference) {
  CORBA::Object_var object = orb->string_to_object(reference);
  V::ValueSuite_var suite = V::ValueSuite::_narrow(object);
  CORBA::Object_var found = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var poa = PortableServer::POA::_narrow(found);
  PortableServer::POAManager_var manager = poa->the_POAManager();
  manager->activate();

  check("echo_money", [&] {
    V::Money a((std::to_string(int(generator()) / 100000) + ".25").c_str()), b("-0.0001"), c;
    V::Money first = a, second = b;
    V::Money result = suite->echo_money(a, b, c);
    return result == first && b == first && c == second ? "" : "another number";
  });
  check("echo_widest", [&] {
    V::Widest a("-123456789012345678901.0123456789"), b("999999999999999999999.9999999999"), c;
    V::Widest first = a, second = b;
    V::Widest result = suite->echo_widest(a, b, c);
    return result == first && b == first && c == second ? "" : "another number";
  });
  check("echo_node", [&] {
    V::Node* a = graph();
    V::Node* b = below(5) ? graph() : nullptr;
    std::string first = form(a), second = form(b);
    V::Node_var inout = b, out;
    V::Node_var result = suite->echo_node(a, inout.inout(), out.out());
    if (result.in() != inout.in()) return std::string("result and inout are not the same value");
    return differs(first, form(result.in())) + differs(second, form(out.in()));
  });
  check("echo_nodes", [&] {
    V::NodeSeq a, b;
    V::Node* shared = graph();
    a.length(4);
    for (unsigned at = 0; at < 4; ++at) a[at] = at == 2 ? nullptr : (CORBA::add_ref(shared), shared);
    V::NodeSeq_var out;
    V::NodeSeq_var result = suite->echo_nodes(a, b, out.out());
    if (result->length() != 4 || out->length() != 0) return std::string("another length");
    V::NodeSeq& got = result.inout();
    V::Node* first = got[0];
    V::Node* second = got[1];
    V::Node* third = got[2];
    V::Node* last = got[3];
    if (first != last || third) return std::string("not shared");
    return differs(form(shared), form(second));
  });
  check("echo_base", [&] {
    V::Base* a = base(below(3));
    V::Base_var inout = base(below(3)), out;
    std::string first = form(a), second = form(inout.in());
    V::Base_var result = suite->echo_base(a, inout.inout(), out.out());
    return differs(first, form(result.in())) + differs(second, form(out.in()));
  });
  check("echo_title", [&] {
    V::Title_var a = new V::Title("a title"), inout, out;
    V::Title_var result = suite->echo_title(a.in(), inout.inout(), out.out());
    return differs("a title", (const char*)result->_value()) + (out.in() ? "not null" : "");
  });
  check("echo_words", [&] {
    V::StringSeq words;
    words.length(2);
    words[0] = "one";
    words[1] = "two";
    V::Words_var a = new V::Words(words), inout = new V::Words, out;
    V::Words_var result = suite->echo_words(a.in(), inout.inout(), out.out());
    const V::StringSeq& got = result->_value();
    return got.length() == 2 && out->_value().length() == 0 ? differs("two", got[1].in()) : "another length";
  });
  check("echo_described", [&] {
    V::Thing_var thing = suite->server_thing();
    auto* note = new Note_i;
    note->text("a note");
    V::Described_var a = V::Described::_duplicate(thing), inout = note, out;
    V::Described_var result = suite->echo_described(a, inout.inout(), out.out());
    CORBA::String_var of_object = result->describe(), of_value = out->describe();
    return differs("thing", of_object.in()) + differs("a note", of_value.in());
  });
  check("echo_folder", [&] {
    V::Folder a;
    V::Node* node = graph();
    a.first = (CORBA::add_ref(node), node);
    a.second = (CORBA::add_ref(node), node);
    a.name = new V::Title("folder");
    a.item = base(1);
    a.chosen.leaf(node);
    a.two[0] = (CORBA::add_ref(node), node);
    V::Folder b = a;
    std::string first = form(node), item = form(a.item.in());
    V::Folder_var out;
    V::Folder_var result = suite->echo_folder(a, b, out.out());
    if (result->first.in() != result->second.in() || result->first.in() != result->two[0].in() || result->two[1].in() ||
        result->first.in() != result->chosen.leaf()) {
      return std::string("not shared");
    }
    return differs(first, form(out->second.in())) + differs(item, form(result->item.in()));
  });
  check("echo_choice", [&] {
    V::Choice a = choice(), b = choice();
    std::string first = form(a), second = form(b);
    V::Choice_var out, result = suite->echo_choice(a, b, out.out());
    return differs(first, form(result.in())) + differs(first, form(b)) + differs(second, form(out.in()));
  });
  check("echo_on_key", [&] {
    V::OnKey a = on_key(), b = on_key();
    std::string first = form(a), second = form(b);
    V::OnKey_var out, result = suite->echo_on_key(a, b, out.out());
    return differs(first, form(result.in())) + differs(first, form(b)) + differs(second, form(out.in()));
  });
  check("echo_on_card", [&] {
    V::OnCard a = on_card(), b = on_card();
    std::string first = form(a), second = form(b);
    V::OnCard_var out, result = suite->echo_on_card(a, b, out.out());
    return differs(first, form(result.in())) + differs(first, form(b)) + differs(second, form(out.in()));
  });
  check("echo_pair", [&] {
    V::Pair a, b;
    V::Node* node = graph();
    a[0] = (CORBA::add_ref(node), node);
    a[1] = (CORBA::add_ref(node), node);
    V::Pair_var out, result = suite->echo_pair(a, b, out.out());
    V::Node *first = result[0], *second = result[1], *inout = b[0], *nothing = out[1];
    if (first != second || nothing) return std::string("not shared");
    return differs(form(node), form(first)) + differs(form(node), form(inout));
  });
  check("echo_shape", [&] {
    auto* square = new Square_i;
    square->side(1.5);
    V::Shape_var inout, out;
    V::Shape_var result = suite->echo_shape(square, inout.inout(), out.out());
    return result->area() == 2.25 && inout->area() == 2.25 && !out.in() ? "" : "another shape";
  });
  check("echo_value", [&] {
    V::Node* node = graph();
    CORBA::ValueBase_var inout = base(2), out;
    std::string second = form(V::Base::_downcast(inout.in()));
    CORBA::ValueBase_var result = suite->echo_value(node, inout.inout(), out.out());
    return differs(form(node), form(V::Node::_downcast(result.in()))) + differs(second, form(V::Base::_downcast(out.in())));
  });
  check("echo_any", [&] {
    V::Node* node = graph();
    V::Folder folder;
    folder.first = (CORBA::add_ref(node), node);
    folder.second = (CORBA::add_ref(node), node);
    folder.item = base(1);
    folder.chosen.number(1);
    CORBA::Any a, b, nested;
    a <<= folder;
    nested <<= node;
    b <<= nested;
    CORBA::Any_var out, result = suite->echo_any(a, b, out.out());
    const V::Folder* got;
    if (!(result.in() >>= got)) return std::string("no folder");
    if (got->first.in() != got->second.in()) return std::string("not shared");
    const CORBA::Any* inner;
    V::Node* innermost;
    if (!(out.in() >>= inner) || !(*inner >>= innermost)) return std::string("no node");
    return differs(form(node), form(got->first.in())) + differs(form(folder.item.in()), form(got->item.in())) +
           differs(form(node), form(innermost));
  });
  anys(suite);
  check("repack", [&] {
    V::Node* node = graph();
    CORBA::Any any;
    any <<= node;
    CORBA::Any_var result = suite->repack(any);
    V::Node* got;
    return (result.in() >>= got) ? differs(form(node), form(got)) : std::string("no node");
  });
  check("walk", [&] {
    V::Node* node = graph();
    Suite_i own;
    CORBA::String_var expected = own.walk(node), found = suite->walk(node);
    return differs(expected.in(), found.in());
  });
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    register_factories(orb);
    int status = 2;
    if (argc >= 3 && std::strcmp(argv[1], "--ior") == 0) status = serve(orb, argv[2]);
    else if (argc >= 3 && std::strcmp(argv[1], "--call") == 0) status = call(orb, argv[2]);
    else std::cerr << "usage: values --ior FILE | --call REFERENCE\n";
    orb->destroy();
    return status;
  } catch (const CORBA::Exception& exception) {
    std::cerr << "values: " << exception._name() << "\n";
    return 1;
  }
}
