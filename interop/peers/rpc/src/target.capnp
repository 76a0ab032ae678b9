@0xd2f3c6a1be0a7c15;

interface Target {
  echoOctet @0 (v :UInt8) -> (v :UInt8);
  echoOctets @1 (v :Data) -> (v :Data);
}
