// events --push REFERENCE COUNT [-ORB...]
//   pushes COUNT values of type long, 0 and up, into the channel of CORBA's Event Service at REFERENCE, then
//   disconnects
// events --consume REFERENCE COUNT [-ORB...]
//   connects as a push consumer, prints `ready`, prints each value, and disconnects after COUNT values
// events --pull REFERENCE COUNT [-ORB...]
//   connects as a pull consumer, prints `ready`, prints each value, and disconnects after COUNT values
//
// Prints `disconnected` when the channel calls a disconnect operation, and `done` at the end.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "cos_events.hh"

namespace Comm = CosEventComm;
namespace Admin = CosEventChannelAdmin;

static void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

static void print(const CORBA::Any& data) {
  CORBA::Long number = 0;
  const char* text = nullptr;
  if (data >>= number) {
    say("long " + std::to_string(number));
  } else if (data >>= text) {
    say(std::string("string ") + text);
  } else {
    CORBA::TypeCode_var type = data.type();
    say("kind " + std::to_string(type->kind()));
  }
}

struct Consumer_i : POA_CosEventComm::PushConsumer {
  explicit Consumer_i(long count) : missing(count) {}

  void push(const CORBA::Any& data) override {
    std::lock_guard<std::mutex> lock(mutex);
    print(data);
    --missing;
    changed.notify_all();
  }

  void disconnect_push_consumer() override {
    say("disconnected");
    std::lock_guard<std::mutex> lock(mutex);
    missing = 0;
    changed.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return missing <= 0; });
  }

  std::mutex mutex;
  std::condition_variable changed;
  long missing;
};

struct Supplier_i : POA_CosEventComm::PushSupplier {
  void disconnect_push_supplier() override { say("disconnected"); }
};

static void push(Admin::EventChannel_ptr channel, long count) {
  Supplier_i* supplier = new Supplier_i;
  Comm::PushSupplier_var reference = supplier->_this();
  supplier->_remove_ref();
  Admin::SupplierAdmin_var admin = channel->for_suppliers();
  Admin::ProxyPushConsumer_var proxy = admin->obtain_push_consumer();
  proxy->connect_push_supplier(reference);
  for (long number = 0; number < count; ++number) {
    CORBA::Any data;
    data <<= static_cast<CORBA::Long>(number);
    proxy->push(data);
  }
  proxy->disconnect_push_consumer();
}

static void consume(Admin::EventChannel_ptr channel, long count) {
  Consumer_i* consumer = new Consumer_i(count);
  Comm::PushConsumer_var reference = consumer->_this();
  Admin::ConsumerAdmin_var admin = channel->for_consumers();
  Admin::ProxyPushSupplier_var proxy = admin->obtain_push_supplier();
  proxy->connect_push_consumer(reference);
  try {
    proxy->connect_push_consumer(reference);
    say("connected twice");
  } catch (const Admin::AlreadyConnected&) {
  }
  say("ready");
  consumer->wait();
  try {
    proxy->disconnect_push_supplier();
  } catch (const CORBA::OBJECT_NOT_EXIST&) {
    // The channel was destroyed.
  } catch (const CORBA::TRANSIENT&) {
    // The channel is being destroyed.
  }
  consumer->_remove_ref();
}

static void pull(Admin::EventChannel_ptr channel, long count) {
  Admin::ConsumerAdmin_var admin = channel->for_consumers();
  Admin::ProxyPullSupplier_var proxy = admin->obtain_pull_supplier();
  proxy->connect_pull_consumer(Comm::PullConsumer::_nil());
  say("ready");
  while (count > 0) {
    try {
      CORBA::Any_var data = proxy->pull();
      print(data.in());
      --count;
    } catch (const CORBA::TRANSIENT&) {
      // There is no event yet.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  CORBA::Boolean has_event = true;
  CORBA::Any_var none = proxy->try_pull(has_event);
  if (has_event) say("one more event");
  proxy->disconnect_pull_supplier();
}

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    if (argc != 4) {
      std::fprintf(stderr, "usage: events --push|--consume|--pull REFERENCE COUNT\n");
      return 2;
    }
    CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    CORBA::Object_var named = orb->string_to_object(argv[2]);
    Admin::EventChannel_var channel = Admin::EventChannel::_narrow(named);
    if (CORBA::is_nil(channel)) {
      say("not an event channel");
      return 1;
    }
    const std::string mode = argv[1];
    const long count = std::atol(argv[3]);
    if (mode == "--push") push(channel, count);
    if (mode == "--consume") consume(channel, count);
    if (mode == "--pull") pull(channel, count);
    say("done");
    orb->destroy();
    return 0;
  } catch (const CORBA::Exception& exception) {
    say(std::string("exception ") + exception._name());
    return 1;
  }
}
