// naming TABLE NAME=REFERENCE... [-ORB...]
//
// Makes the calls of interop/naming.table on the objects that the arguments name, and prints the report of a client.

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <omniORB4/CORBA.h>
#include <omniORB4/Naming.hh>
#include <omniORB4/omniURI.h>

using CosNaming::NamingContext;
using CosNaming::NamingContextExt;
using std::string;

static std::map<string, CORBA::Object_var> objects;

static CosNaming::Name_var parse_name(const string& text) {
  return text == "-" ? new CosNaming::Name : omni::omniURI::stringToName(text.c_str());
}

static string show(const CosNaming::Name& name) {
  if (name.length() == 0) return "-";
  CORBA::String_var text = omni::omniURI::nameToString(name);
  return text.in();
}

static bool is(CORBA::Object_ptr object, const string& name) {
  auto known = objects.find(name);
  return known != objects.end() && !CORBA::is_nil(known->second) && known->second->_is_equivalent(object);
}

// Shows an object as the expected result does, if it is the expected object.
static string show(CORBA::Object_ptr object, const string& expected) {
  if (CORBA::is_nil(object)) return "nil";
  if (expected.compare(0, 4, "new ") == 0) {
    objects[expected.substr(4)] = CORBA::Object::_duplicate(object);
    return expected;
  }
  return expected.compare(0, 3, "is ") == 0 && is(object, expected.substr(3)) ? expected : "another object";
}

static string rest_after(const string& text, size_t words) {
  std::istringstream in(text);
  string word, rest;
  for (size_t i = 0; i < words; ++i) in >> word;
  std::getline(in >> std::ws, rest);
  return rest;
}

static string names_of(CosNaming::NamingContext_ptr context) {
  CosNaming::BindingList_var list;
  CosNaming::BindingIterator_var iterator;
  context->list(1, list, iterator);
  std::vector<string> names;
  auto add = [&](const CosNaming::Binding& binding) {
    names.push_back(show(binding.binding_name) + (binding.binding_type == CosNaming::ncontext ? "/" : ""));
  };
  for (CORBA::ULong i = 0; i < list->length(); ++i) add(list[i]);
  if (!CORBA::is_nil(iterator)) {
    while (iterator->next_n(2, list))
      for (CORBA::ULong i = 0; i < list->length(); ++i) add(list[i]);
    iterator->destroy();
  }
  std::sort(names.begin(), names.end());
  string all;
  for (const string& name : names) all += (all.empty() ? "" : " ") + name;
  return all;
}

static string call_iterator(CORBA::Object_ptr object, const string& operation, const string& argument) {
  CosNaming::BindingIterator_var iterator = CosNaming::BindingIterator::_unchecked_narrow(object);
  if (operation == "destroy_iterator") return iterator->destroy(), "done";
  if (operation == "next_one") {
    CosNaming::Binding_var binding;
    return iterator->next_one(binding) ? "true" : "false";
  }
  CosNaming::BindingList_var list;
  bool has = iterator->next_n(std::stoul(argument), list);
  return (has ? "true " : "false ") + std::to_string(list->length());
}

static string call(const std::vector<string>& words, const string& expected) {
  const string& operation = words[2];
  const string first = words.size() > 3 ? words[3] : "", second = words.size() > 4 ? words[4] : "";
  CORBA::Object_ptr object = objects[words[1]];
  if (operation == "next_one" || operation == "next_n" || operation == "destroy_iterator")
    return call_iterator(object, operation, first);
  CosNaming::NamingContextExt_var context = NamingContextExt::_unchecked_narrow(object);
  auto name = [&] { return parse_name(first); };
  auto target = [&] { return second == "nil" ? CORBA::Object::_nil() : objects[second].in(); };
  auto target_context = [&] { return NamingContext::_unchecked_narrow(target()); };
  if (operation == "bind") return context->bind(name(), target()), "done";
  if (operation == "rebind") return context->rebind(name(), target()), "done";
  if (operation == "bind_context" || operation == "rebind_context") {
    CosNaming::NamingContext_var bound = target_context();
    if (operation == "bind_context") context->bind_context(name(), bound);
    else context->rebind_context(name(), bound);
    return "done";
  }
  if (operation == "unbind") return context->unbind(name()), "done";
  if (operation == "destroy") return context->destroy(), "done";
  if (operation == "names") return names_of(context);
  if (operation == "list") {
    CosNaming::BindingList_var list;
    CosNaming::BindingIterator_var iterator;
    context->list(std::stoul(first), list, iterator);
    return std::to_string(list->length()) + " " + show(iterator, rest_after(expected, 1));
  }
  if (operation == "to_string") {
    CORBA::String_var text = context->to_string(name());
    return text.in();
  }
  if (operation == "to_name") {
    CosNaming::Name_var found = context->to_name(first.c_str());
    return show(found);
  }
  if (operation == "to_url") {
    CORBA::String_var url = context->to_url(first == "-" ? "" : first.c_str(), second.c_str());
    return url.in();
  }
  CORBA::Object_var found;
  if (operation == "resolve") found = context->resolve(name());
  else if (operation == "resolve_str") found = context->resolve_str(first.c_str());
  else if (operation == "new_context") found = context->new_context();
  else if (operation == "bind_new_context") found = context->bind_new_context(name());
  else return "there is no operation " + operation;
  return show(found, expected);
}

static string outcome(const std::vector<string>& words, const string& expected) {
  try {
    return call(words, expected);
  } catch (const NamingContext::NotFound& raised) {
    static const char* const reasons[] = {"missing_node", "not_context", "not_object"};
    return string("NotFound ") + reasons[raised.why] + " " + show(raised.rest_of_name);
  } catch (const NamingContext::CannotProceed& raised) {
    std::istringstream in(expected);
    string word, context;
    in >> word >> context;
    if (!is(raised.cxt, context)) context = CORBA::is_nil(raised.cxt) ? "nil" : "another";
    return "CannotProceed " + context + " " + show(raised.rest_of_name);
  } catch (const CORBA::Exception& raised) {
    return raised._name();
  }
}

int main(int argc, char** argv) {
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  if (argc < 3) {
    std::cerr << "usage: naming TABLE NAME=REFERENCE..." << std::endl;
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    string word = argv[i];
    size_t equals = word.find('=');
    objects[word.substr(0, equals)] = orb->string_to_object(word.c_str() + equals + 1);
  }
  std::ifstream table(argv[1]);
  string line;
  int passed = 0, failed = 0;
  while (std::getline(table, line)) {
    if (line.empty() || line[0] == '#') continue;
    size_t arrow = line.find(" -> ");
    string expected = line.substr(arrow + 4);
    std::istringstream in(line.substr(0, arrow));
    std::vector<string> words;
    for (string word; in >> word;) words.push_back(word);
    string got = outcome(words, expected);
    if (got == expected) {
      ++passed;
      std::cout << "ok " << words[0] << std::endl;
    } else {
      ++failed;
      std::cout << "FAIL " << words[0] << " expected " << expected << " got " << got << std::endl;
    }
  }
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  orb->destroy();
  return 0;
}
