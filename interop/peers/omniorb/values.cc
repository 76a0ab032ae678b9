// values --ior FILE [-ORB...]      serves InteropValues::ValueSuite until its shutdown operation, at most 240 s
// values --call REFERENCE [-ORB...] calls it: prints `ok NAME` or `FAIL NAME ...` for each check and `N passed, M failed` at last

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

// What a graph looks like from one of its nodes.
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

// c becomes b, b becomes a, a is the result; each has its count.
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
  V::Folder* echo_folder(const V::Folder& a, V::Folder& b, V::Folder_out c) override {
    c = new V::Folder(b);
    b = a;
    return new V::Folder(a);
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

// A graph whose nodes refer to any of them, or to none.
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
      // The minor codes of others have no name.
      const char* minor = exception.NP_minorString();
      trouble = std::string(exception._name()) + " " + (minor ? minor : std::to_string(exception.minor()));
    } catch (const CORBA::Exception& exception) {
      trouble = exception._name();
    }
  }
  std::cout << (trouble.empty() ? "ok " : "FAIL ") << name << (trouble.empty() ? "" : " ") << trouble << std::endl;
  ++(trouble.empty() ? passed : failed);
}

static std::string differs(const std::string& expected, const std::string& found) {
  return expected == found ? "" : "expected " + expected + ", found " + found;
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
