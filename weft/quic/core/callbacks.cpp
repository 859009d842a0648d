#include <ngtcp2/ngtcp2_crypto.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>

#include <weft/quic/core/connection_impl.hpp>

namespace weft::quic::core::detail {

/// What the protocol library calls. Exceptions must not cross it, and it must not be re-entered:
/// the functions here note what happened and return.
struct callbacks {
  using kind = connection_event::kind;

  static connection_impl& self(void* user) noexcept { return *static_cast<connection_impl*>(user); }

  template <class Body>
  static int guarded(void* user, Body body) noexcept {
    try {
      return body(self(user));
    } catch (const std::bad_alloc&) {
      self(user).memory_failed_ = true;
    } catch (...) {
    }
    return NGTCP2_ERR_CALLBACK_FAILURE;
  }

  // Handshake -------------------------------------------------------------------------------------

  static int recv_crypto_data(ngtcp2_conn* native, ngtcp2_encryption_level level,
                              std::uint64_t offset, const std::uint8_t* data, std::size_t size,
                              void* user) {
    return guarded(user, [&](connection_impl& c) {
      c.tls_.receive({data, size});
      return ngtcp2_crypto_recv_crypto_data_cb(native, level, offset, nullptr, 0, user);
    });
  }

  static int handshake_completed(ngtcp2_conn* native, void* user) {
    return guarded(user, [&](connection_impl& c) {
      c.handshake_over();
      if (c.server_) {
        c.confirmed_ = true;
        give_token(c, native);
        return 0;
      }
      if (auto agreed = tls::require_alpn(c.tls_.ssl(), c.peer_); !agreed)
        c.refused_.emplace(agreed.error());
      keep_params(c, native);
      if (c.early_attempted_ && !c.session_.early_data_accepted)
        return ngtcp2_conn_tls_early_data_rejected(native);
      return 0;
    });
  }

  static void keep_params(connection_impl& c, ngtcp2_conn* native) {
    auto& params = c.resumption_.params;
    params.resize(512);
    const auto size =
        ngtcp2_conn_encode_0rtt_transport_params2(native, params.data(), params.size());
    params.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  }

  static void give_token(connection_impl& c, ngtcp2_conn* native) {
    const auto remote = c.real_path(*ngtcp2_conn_get_path2(native)).remote;
    const auto token = c.hub_.validation.token(remote, from_native(c.last_stamp_));
    if (!token.empty()) ngtcp2_conn_submit_new_token(native, token.data(), token.size());
  }

  static int version_negotiation(ngtcp2_conn*, const ngtcp2_pkt_hd*, const std::uint32_t* offered,
                                 std::size_t count, void* user) {
    return guarded(user, [&](connection_impl& c) {
      c.note_versions({offered, count});
      return 0;
    });
  }

  static int handshake_confirmed(ngtcp2_conn*, void* user) {
    self(user).confirmed_ = true;
    self(user).shut_held();
    return 0;
  }

  static int early_data_rejected(ngtcp2_conn*, void* user) {
    return guarded(user, [](connection_impl& c) {
      for (stream* s = c.all_.front(); s; s = c.all_.next(*s)) c.end_stream(*s);
      c.signal(kind::early_data_rejected);
      return 0;
    });
  }

  static int recv_new_token(ngtcp2_conn*, const std::uint8_t* token, std::size_t size, void* user) {
    return guarded(user, [&](connection_impl& c) {
      if (size > 1024) return 0;
      c.resumption_.token.assign(token, token + size);
      c.signal(kind::new_session);
      return 0;
    });
  }

  static int update_key(ngtcp2_conn* native, std::uint8_t* rx_secret, std::uint8_t* tx_secret,
                        ngtcp2_crypto_aead_ctx* rx_context, std::uint8_t* rx_iv,
                        ngtcp2_crypto_aead_ctx* tx_context, std::uint8_t* tx_iv,
                        const std::uint8_t* rx_now, const std::uint8_t* tx_now, std::size_t size,
                        void* user) {
    // The first call prepares the keys of the first update; each later one follows an update, some
    // probe time-outs after it.
    auto& c = self(user);
    const bool counted = std::exchange(c.update_counted_, false);
    if (std::exchange(c.keys_prepared_, true) && !counted) ++c.counters_.key_updates;
    std::array<std::uint8_t, 64> rx_key, tx_key;
    const int failed =
        ngtcp2_crypto_update_key(native, rx_secret, tx_secret, rx_context, rx_key.data(), rx_iv,
                                 tx_context, tx_key.data(), tx_iv, rx_now, tx_now, size);
    if (failed == 0) {
      quicken(*rx_context, c.tls_.fast_cipher(), rx_key.data());
      quicken(*tx_context, c.tls_.fast_cipher(), tx_key.data());
    }
    OPENSSL_cleanse(rx_key.data(), rx_key.size());
    OPENSSL_cleanse(tx_key.data(), tx_key.size());
    return failed == 0 ? 0 : NGTCP2_ERR_CALLBACK_FAILURE;
  }

  // Randomness and ids ----------------------------------------------------------------------------

  static void random(std::uint8_t* out, std::size_t size, const ngtcp2_rand_ctx* context) {
    auto& c = self(context->native_handle);
    if (c.hub_.random(out, size)) return;
    // This callback cannot fail; the connection ends as soon as the library returns.
    c.random_failed_ = true;
    std::memset(out, 0, size);
  }

  static int get_new_connection_id(ngtcp2_conn*, ngtcp2_cid* id,
                                   ngtcp2_stateless_reset_token* token, std::size_t, void* user) {
    return guarded(user, [&](connection_impl& c) {
      std::uint64_t number = 0;
      if (!c.hub_.issue_id(c, *id, number)) {
        c.random_failed_ = true;
        return NGTCP2_ERR_CALLBACK_FAILURE;
      }
      c.ids_.push_back(number);
      return c.hub_.validation.reset_token({id->data, id->datalen}, *token)
                 ? 0
                 : NGTCP2_ERR_CALLBACK_FAILURE;
    });
  }

  static int remove_connection_id(ngtcp2_conn*, const ngtcp2_cid* id, void* user) {
    auto& c = self(user);
    if (id->datalen != connection_id_size) return 0;
    const auto number = hub::number(id->data);
    if (std::erase(c.ids_, number) != 0) c.hub_.routes.erase(number);
    return 0;
  }

  static int path_challenge(ngtcp2_conn*, ngtcp2_path_challenge_data* data, void* user) {
    auto& c = self(user);
    if (c.hub_.random(data->data, sizeof data->data)) return 0;
    c.random_failed_ = true;
    return NGTCP2_ERR_CALLBACK_FAILURE;
  }

  static int peer_id_changed(ngtcp2_conn*, ngtcp2_connection_id_status_type what, std::uint64_t,
                             const ngtcp2_cid*, const ngtcp2_stateless_reset_token* token,
                             void* user) {
    if (!token) return 0;
    return guarded(user, [&](connection_impl& c) {
      ngtcp2_cid key;
      ngtcp2_cid_init(&key, token->data, sizeof token->data);
      if (what == NGTCP2_CONNECTION_ID_STATUS_TYPE_ACTIVATE) {
        if (c.hub_.reset_routes.emplace(key, &c).second) c.reset_tokens_.push_back(key);
      } else if (std::erase_if(c.reset_tokens_, [&](auto& known) {
                   return ngtcp2_cid_eq(&known, &key) != 0;
                 }) != 0) {
        c.hub_.reset_routes.erase(key);
      }
      return 0;
    });
  }

  static int stateless_reset(ngtcp2_conn*, const ngtcp2_pkt_stateless_reset2*, void* user) {
    self(user).stateless_reset_ = true;
    return 0;
  }

  // Paths -----------------------------------------------------------------------------------------

  static int begin_path_validation(ngtcp2_conn* native, std::uint32_t, const ngtcp2_path* where,
                                   const ngtcp2_path*, void* user) {
    auto& c = self(user);
    c.path_news_ = true;
    // What follows a success is a look at whether the old path is alive (RFC 9000 §9.3.3). Nothing
    // depends on it, and its end is not told.
    if (c.path_validated_ && !ngtcp2_path_eq(where, ngtcp2_conn_get_path2(native))) return 0;
    // The packet that proved one path may have come by another.
    c.path_validated_ = false;
    c.validating_ = true;
    return 0;
  }

  static int path_validation(ngtcp2_conn* native, std::uint32_t flags, const ngtcp2_path*,
                             const ngtcp2_path*, ngtcp2_path_validation_result outcome,
                             void* user) {
    return guarded(user, [&](connection_impl& c) {
      c.validating_ = false;
      c.path_news_ = true;
      if (outcome == NGTCP2_PATH_VALIDATION_RESULT_SUCCESS) c.path_validated_ = true;
      if (outcome == NGTCP2_PATH_VALIDATION_RESULT_FAILURE && !c.server_)
        c.signal(kind::migration_failed);
      if ((flags & NGTCP2_PATH_VALIDATION_FLAG_NEW_TOKEN) != 0) give_token(c, native);
      return 0;
    });
  }

  // Streams ---------------------------------------------------------------------------------------

  static int stream_open(ngtcp2_conn* native, std::int64_t id, void* user) {
    return guarded(user, [&](connection_impl& c) {
      stream& s = c.new_stream(id, false);
      c.incoming_.push_back(s);
      ++c.counters_.streams_accepted;
      auto& credit = is_bidirectional(id) ? c.bidi_credit_ : c.uni_credit_;
      credit.opened = std::max(credit.opened, static_cast<std::uint64_t>(id) / 4 + 1);
      if (c.may_announce_early_) c.announce();
      c.signal(kind::incoming_stream);
      return ngtcp2_conn_set_stream_user_data(native, id, &s) == 0 ? 0
                                                                   : NGTCP2_ERR_CALLBACK_FAILURE;
    });
  }

  static int stream_data(ngtcp2_conn*, std::uint32_t flags, std::int64_t, std::uint64_t,
                         const std::uint8_t* data, std::size_t size, void* user, void* of) {
    return guarded(user, [&](connection_impl& c) {
      if (!of) return 0;
      auto& s = *static_cast<stream*>(of);
      if ((flags & NGTCP2_STREAM_DATA_FLAG_0RTT) != 0) s.early_data_ = true;
      c.on_stream_data(s, {reinterpret_cast<const std::byte*>(data), size},
                       (flags & NGTCP2_STREAM_DATA_FLAG_FIN) != 0);
      return 0;
    });
  }

  static int acknowledged(ngtcp2_conn*, std::int64_t, std::uint64_t, std::uint64_t size, void* user,
                          void* of) {
    if (of) self(user).on_acknowledged(*static_cast<stream*>(of), static_cast<std::size_t>(size));
    return 0;
  }

  static int stream_close(ngtcp2_conn*, std::uint32_t, std::int64_t, std::uint64_t, void* user,
                          void* of) {
    return guarded(user, [&](connection_impl& c) {
      if (of)
        c.on_stream_closed(*static_cast<stream*>(of));
      else if (c.silent_streams_ > 0)
        --c.silent_streams_;  // its end came after all
      return 0;
    });
  }

  static int stream_reset(ngtcp2_conn*, std::int64_t, std::uint64_t, std::uint64_t code, void* user,
                          void* of) {
    return guarded(user, [&](connection_impl& c) {
      if (!of) return 0;
      auto& s = *static_cast<stream*>(of);
      // Everything has arrived and is there to read: the reset came too late (RFC 9000 §3.2).
      if (s.fin_received_) return 0;
      s.reset_code_ = code;
      c.drop_unread(s);
      c.signal(s, readable);
      return 0;
    });
  }

  static int stop_sending(ngtcp2_conn*, std::int64_t, std::uint64_t code, void* user, void* of) {
    return guarded(user, [&](connection_impl& c) {
      if (!of) return 0;
      auto& s = *static_cast<stream*>(of);
      s.stopped_code_ = code;
      s.reset_sent_ = true;  // the library answers with RESET_STREAM by itself
      c.drop_unsent(s);
      c.signal(s, stopped | writable);
      return 0;
    });
  }

  static int stream_room(ngtcp2_conn*, std::int64_t, std::uint64_t, void* user, void* of) {
    return guarded(user, [&](connection_impl& c) {
      if (!of) return 0;
      auto& s = *static_cast<stream*>(of);
      s.flow_blocked_ = false;
      c.schedule(s);
      return 0;
    });
  }

  static int more_streams(ngtcp2_conn*, std::uint64_t, void* user) {
    auto& c = self(user);
    if (std::exchange(c.want_streams_, false)) c.signal(kind::stream_credit);
    return 0;
  }

  // Datagrams -------------------------------------------------------------------------------------

  static int recv_datagram(ngtcp2_conn*, std::uint32_t, const std::uint8_t* data, std::size_t size,
                           void* user) {
    return guarded(user, [&](connection_impl& c) {
      c.on_datagram({reinterpret_cast<const std::byte*>(data), size});
      return 0;
    });
  }

  static ngtcp2_callbacks common() noexcept {
    ngtcp2_callbacks t{};
    t.recv_crypto_data = recv_crypto_data;
    t.handshake_completed = handshake_completed;
    t.encrypt = seal;
    t.decrypt = unseal;
    t.hp_mask = header_mask;
    t.recv_stream_data = stream_data;
    t.acked_stream_data_offset = acknowledged;
    t.stream_open = stream_open;
    t.stream_close = stream_close;
    t.extend_max_local_streams_bidi = more_streams;
    t.extend_max_local_streams_uni = more_streams;
    t.rand = random;
    t.remove_connection_id = remove_connection_id;
    t.update_key = update_key;
    t.path_validation = path_validation;
    t.stream_reset = stream_reset;
    t.extend_max_stream_data = stream_room;
    t.delete_crypto_aead_ctx = delete_aead;
    t.delete_crypto_cipher_ctx = delete_mask;
    t.recv_datagram = recv_datagram;
    t.version_negotiation = ngtcp2_crypto_version_negotiation_cb;
    t.begin_path_validation = begin_path_validation;
    t.recv_stateless_reset2 = stateless_reset;
    t.dcid_status2 = peer_id_changed;
    t.get_new_connection_id2 = get_new_connection_id;
    t.get_path_challenge_data2 = path_challenge;
    t.recv_stop_sending = stop_sending;
    return t;
  }
};

const ngtcp2_callbacks& client_callbacks() noexcept {
  static const ngtcp2_callbacks table = [] {
    auto t = callbacks::common();
    t.client_initial = ngtcp2_crypto_client_initial_cb;
    t.recv_retry = ngtcp2_crypto_recv_retry_cb;
    t.recv_version_negotiation = callbacks::version_negotiation;
    t.handshake_confirmed = callbacks::handshake_confirmed;
    t.recv_new_token = callbacks::recv_new_token;
    t.tls_early_data_rejected = callbacks::early_data_rejected;
    return t;
  }();
  return table;
}

const ngtcp2_callbacks& server_callbacks() noexcept {
  static const ngtcp2_callbacks table = [] {
    auto t = callbacks::common();
    t.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
    return t;
  }();
  return table;
}

}  // namespace weft::quic::core::detail
