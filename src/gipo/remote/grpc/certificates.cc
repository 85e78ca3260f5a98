#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gipo/core/error.h"
#include "gipo/io/files.h"
#include "gipo/remote/grpc/transport.h"
#include "gipo/remote/names.h"
#include "gipo/remote/remote.h"

namespace gipo {
namespace {

namespace fs = std::filesystem;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using MemoryBio = std::unique_ptr<BIO, Freed<BIO_free_all>>;

constexpr long kDay = 24 * 60 * 60;
constexpr int kAuthorityDays = 3650;

void must(bool ok, const char* what) {
  if (!ok) throw RunError(fmt::format("certificates: OpenSSL could not {}", what));
}

std::string text_of(const MemoryBio& memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

// Nobody else may read a key, not even for the moment before its mode is set.
void write_key(const std::string& path, EVP_PKEY* key) {
  const MemoryBio out(BIO_new(BIO_s_mem()));
  must(PEM_write_bio_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1, "write a key");
  const mode_t before = umask(0077);
  try {
    write_file_atomic(path, text_of(out));
  } catch (...) {
    umask(before);
    throw;
  }
  umask(before);
}

void write_certificate(const std::string& path, X509* certificate) {
  const MemoryBio out(BIO_new(BIO_s_mem()));
  must(PEM_write_bio_X509(out.get(), certificate) == 1, "write a certificate");
  write_file_atomic(path, text_of(out));
}

template <class T>
T read_pem(const std::string& path, auto&& read) {
  const std::string text = read_file(path, 1 << 20);
  const MemoryBio in(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  T result(read(in.get(), nullptr, nullptr, nullptr));
  if (!result) throw Error(fmt::format("{}: it is no PEM file of its kind; remove the folder to begin anew", path));
  return result;
}

Key new_key() {
  Key key(EVP_EC_gen("P-256"));
  must(key != nullptr, "make a key");
  return key;
}

void add_extension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  must(extension != nullptr, "make an extension");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

struct Authority {
  Key key;
  Certificate certificate;
};

struct Wanted {
  std::string name;
  int days = 0;
  std::vector<std::pair<int, std::string>> extensions;
};

// authority: null for the one that signs itself.
Certificate sign(const Wanted& wanted, EVP_PKEY* key, const Authority* authority) {
  Certificate c(X509_new());
  must(c != nullptr, "make a certificate");
  X509_set_version(c.get(), 2);
  const std::unique_ptr<BIGNUM, Freed<BN_free>> serial(BN_new());
  must(BN_rand(serial.get(), 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1, "make a serial number");
  BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(c.get()));
  X509_gmtime_adj(X509_getm_notBefore(c.get()), -kDay);  // clocks differ
  X509_gmtime_adj(X509_getm_notAfter(c.get()), wanted.days * kDay);
  X509_set_pubkey(c.get(), key);
  X509_NAME* name = X509_get_subject_name(c.get());
  must(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(wanted.name.c_str()),
                                  -1, -1, 0) == 1,
       "set a name");
  X509* issuer = authority ? authority->certificate.get() : c.get();
  X509_set_issuer_name(c.get(), X509_get_subject_name(issuer));
  for (const auto& [id, value] : wanted.extensions) add_extension(c.get(), issuer, id, value);
  must(X509_sign(c.get(), authority ? authority->key.get() : key, EVP_sha256()) > 0, "sign a certificate");
  return c;
}

Authority authority_in(const std::string& folder, std::vector<std::string>& written) {
  const std::string key_file = folder + "/ca.key", certificate_file = folder + "/ca.crt";
  if (fs::exists(key_file)) {
    return {read_pem<Key>(key_file, PEM_read_bio_PrivateKey),
            read_pem<Certificate>(certificate_file, PEM_read_bio_X509)};
  }
  if (fs::exists(certificate_file)) {
    throw Error(
        fmt::format("{}: it has ca.crt without ca.key: give the folder that the authority was made in", folder));
  }
  Authority authority{new_key(), nullptr};
  authority.certificate = sign({"gipo authority",
                                kAuthorityDays,
                                {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                 {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                 {NID_subject_key_identifier, "hash"}}},
                               authority.key.get(), nullptr);
  write_key(key_file, authority.key.get());
  write_certificate(certificate_file, authority.certificate.get());
  written.insert(written.end(), {key_file, certificate_file});
  return authority;
}

bool is_address(const std::string& host) {
  return host.find(':') != host.npos || host.find_first_not_of("0123456789.") == host.npos;
}

}  // namespace

std::vector<std::string> make_certificates(const std::string& folder, const std::vector<std::string>& hosts,
                                           const std::vector<std::string>& actors, int days) {
  for (const std::string& name : actors) {
    if (const std::string fault = actor_name_fault(name); !fault.empty()) {
      throw Error(fmt::format("--actor {} is not accepted: {}", name, fault));
    }
    if (name == "learner") throw Error("--actor learner is not accepted: the folder of that name is the learner's");
    const std::string path = folder + "/" + name;
    if (fs::exists(path))
      throw Error(fmt::format("--actor {}: {} exists already; remove it to replace it", name, path));
  }
  for (const std::string& host : hosts) {
    const bool fine = !host.empty() && std::ranges::all_of(host, [](unsigned char c) {
      return std::isalnum(c) || c == '.' || c == '-' || c == ':';
    });
    if (!fine) throw Error(fmt::format("--host {} is not accepted: wanted a host name or an address", host));
  }
  std::vector<std::string> written;
  make_folder(folder);
  const Authority authority = authority_in(folder, written);
  const auto issue = [&](const std::string& place, const char* role, Wanted wanted) {
    const Key key = new_key();
    wanted.days = days;
    wanted.extensions.insert(wanted.extensions.end(), {{NID_basic_constraints, "critical,CA:FALSE"},
                                                       {NID_key_usage, "critical,digitalSignature"},
                                                       {NID_authority_key_identifier, "keyid"}});
    const Certificate certificate = sign(wanted, key.get(), &authority);
    make_folder(place);
    write_key(place + "/" + role + ".key", key.get());
    write_certificate(place + "/" + role + ".crt", certificate.get());
    write_certificate(place + "/ca.crt", authority.certificate.get());
    for (const char* end : {".key", ".crt"}) written.push_back(place + "/" + role + end);
    written.push_back(place + "/ca.crt");
  };
  const std::string learner = folder + "/learner";
  if (!hosts.empty() || !fs::exists(learner)) {
    std::string names = "DNS:localhost,IP:127.0.0.1,IP:::1";
    for (const std::string& host : hosts) names += fmt::format(",{}:{}", is_address(host) ? "IP" : "DNS", host);
    issue(learner, "learner", {"gipo-learner", 0, {{NID_subject_alt_name, names}, {NID_ext_key_usage, "serverAuth"}}});
  }
  for (const std::string& name : actors) {
    issue(folder + "/" + name, "actor", {name, 0, {{NID_ext_key_usage, "clientAuth"}}});
  }
  return written;
}

void refuse_outside_its_time(const std::string& certificate_file) {
  const Certificate c = read_pem<Certificate>(certificate_file, PEM_read_bio_X509);
  const bool early = X509_cmp_current_time(X509_get0_notBefore(c.get())) > 0,
             late = X509_cmp_current_time(X509_get0_notAfter(c.get())) < 0;
  if (!early && !late) return;
  const MemoryBio out(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(out.get(), early ? X509_get0_notBefore(c.get()) : X509_get0_notAfter(c.get()));
  const std::time_t now = std::time(nullptr);
  throw Error(fmt::format(
      "{}: the certificate is {} {}, and this host's clock says {:%Y-%m-%d %H:%M} GMT: set the clock, or remove the "
      "certificate's folder and make it again with gipo certs",
      certificate_file, early ? "valid from" : "valid until", text_of(out), fmt::gmtime(now)));
}

}  // namespace gipo
